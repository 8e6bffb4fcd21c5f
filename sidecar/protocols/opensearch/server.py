"""One OpenSearch or Elasticsearch server: what the sidecar has learnt about it (names and
continuations), and the functions with which its handlers read requests."""

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.protocols.opensearch import request_parts
from sidecar.protocols.opensearch.indices import (
    ALL_INDICES,
    Indices,
    is_pattern,
    parse_expand_wildcards,
    parse_names,
)
from sidecar.protocols.protocol import (
    FetchedResponse,
    RoutedRequest,
    SourceProtocol,
    SourceRef,
    Sources,
    Unresolved,
)
from sidecar.protocols.shared.caches import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

_TOKEN_MEMBERS = ("_scroll_id", "pit_id", "cursor", "id")
"""The members of a response that hold the token of a continuation, such as a scroll id."""

# The path of the only API that takes an index as a query parameter.
_INDEX_IN_QUERY = ("_plugins", "_asynchronous_search")

# Appended to a continuation's token, it makes a second token. A caller could send that one too, but
# it stands for the same sources.
_LEVEL_ADDED = "\x00mark"


class OpenSearchServer(SourceProtocol):
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.source_names = SourceNames(source)
        self.indices = Indices(self.source_names, monotonic)
        self.continuations = Continuations(monotonic)
        self.level_field = source.sensitivity_field

    async def sources(
        self,
        names: Iterable[str],
        request: RoutedRequest,
        query: dict[str, str],
        default_expand: str | None = None,
    ) -> Sources:
        """Return the sources that index names stand for. The parameter `expand_wildcards` in
        `query` says which indices patterns cover; without it, `default_expand` does."""
        expand = parse_expand_wildcards(query.get("expand_wildcards", default_expand))
        return await self.indices.sources(names, request, expand_wildcards=expand)

    def forget_names(self) -> None:
        self.indices.clear()

    def remember_continuations(
        self, response: Any, request: RoutedRequest, sources: Sources, *, level_added: bool = False
    ) -> None:
        """Remember for which sources the continuations in a response were issued. `level_added`
        also records that the sidecar, not the caller, asked for the level in later pages."""
        # A response without any of these ends its continuation, or never had one.
        members = response if isinstance(response, dict) else {}
        found = [members.get(each) for each in _TOKEN_MEMBERS]
        for token in (each for each in found if isinstance(each, str) and each):
            self.continuations.remember(token, request.attribution, sources)
            if level_added:
                self.continuations.remember(token + _LEVEL_ADDED, request.attribution, sources)

    def is_level_added(self, token: str, who: Attribution) -> bool:
        """Return whether the sidecar must remove the level from the pages of the continuation
        `token`, because the caller didn't ask for it."""
        try:
            self.continuations.sources_of(token + _LEVEL_ADDED, who)
        except Unresolved:
            # Never remembered: the caller requested the level too.
            return False
        return True


def path_names(request: RoutedRequest) -> tuple[str, ...]:
    return parse_names(request.path_params[0])


def requested_names(request: RoutedRequest) -> tuple[str, ...]:
    """Return the index names in the path of a request, or in its query for the one API that takes
    them there; all indices if there are none."""
    if request.path_params:
        return path_names(request)
    # Only `_INDEX_IN_QUERY` may have this parameter: it is refused with any other path.
    given = request_parts.parse_query(request.target.query).get("index")
    return (ALL_INDICES,) if given is None else parse_names(given)


def hint_source(server: OpenSearchServer, request: RoutedRequest) -> SourceRef | None:
    """Return the index that the path of a write names; None if the path names several, or a
    pattern."""
    names = request.path_params[0].split(",")
    if len(names) == 1 and not is_pattern(names[0]):
        return server.source_names.of(names[0])
    # Several indices, or a pattern: no single one of them is what the write is about.
    return None


def parse_json(response: FetchedResponse) -> Any:
    """Return the JSON of a response; None if it has another format."""
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError:
        # Cat tables and query languages have formats of their own.
        return None


def read_parameters(request: RoutedRequest) -> dict[str, str]:
    """Return the query parameters of a request that reads. `index` is allowed only where the path
    has no place for an index: elsewhere the server could read a different index from the one that
    was judged. Raises `Malformed`."""
    names = request_parts.READ_PARAMETERS
    if request.target.segments == _INDEX_IN_QUERY:
        names |= {"index"}
    return request_parts.parse_known(request.target.query, names)


def string_member(body: Any, member: str) -> str:
    """Return the value of a member of `body` that must be a non-empty string. Raises `Malformed`
    otherwise."""
    value = body.get(member) if isinstance(body, dict) else None
    if not isinstance(value, str) or not value:
        raise Malformed(f"`{member}` must be a non-empty string")
    return value


def union(one: Sources, other: Sources) -> Sources:
    return tuple(dict.fromkeys((*one, *other)))


def object_list(body: Any, member: str, error: type[Exception] = Malformed) -> list[dict[str, Any]]:
    """Return the value of a member of `body` that must be a list of objects. Raises `error`
    otherwise. In a request (`error` is `Malformed`), an absent member counts as empty."""
    found = body.get(member) if isinstance(body, dict) else None
    if found is None and error is Malformed:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise error(f"`{member}` must be a list of objects")
    return found
