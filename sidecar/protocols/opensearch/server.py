"""One OpenSearch or Elasticsearch, and what is known of it: its indices' names, and what its
continuations stand for. Knows no routes."""

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.protocols.messages import FetchedResponse, RoutedRequest, SourceRef, Unresolved
from sidecar.protocols.opensearch import parameters
from sidecar.protocols.opensearch.indices import EVERYTHING, Indices, is_pattern, items, widths
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.shared.continuations import Continuations
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.settings.model import Source

TOKENS = ("_scroll_id", "pit_id", "cursor", "id")
"""Members of an answer that a later request is made with."""

_INDEX_IN_QUERY = ("_plugins", "_asynchronous_search")

_HIDDEN = "\x00mark"


class OpenSearchServer(SourceProtocol):
    """What every function of the table is given first."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.naming = SourceNames(source)
        self.indices = Indices(self.naming, monotonic)
        self.issued = Continuations(monotonic)
        self.marked = source.sensitivity_field

    async def places(
        self,
        names: Iterable[str],
        asked: RoutedRequest,
        query: dict[str, str],
        usual: str | None = None,
    ) -> tuple[SourceRef, ...]:
        """What index names stand for; the request says what patterns cover, and `usual` is it where
        it does not."""
        wide = widths(query.get("expand_wildcards", usual))
        return await self.indices.places(names, asked, wide=wide)

    def names_change(self) -> None:
        """A write may change what names mean."""
        self.indices.clear()

    def learn(self, answer: Any, asked: RoutedRequest, places: tuple[SourceRef, ...]) -> None:
        """Remembers what the continuations in an answer stand for."""
        if isinstance(answer, dict):
            for member in TOKENS:
                token = answer.get(member)
                if isinstance(token, str) and token:
                    self.issued.remember(token, asked.attribution, places)

    def hide_mark(
        self, answer: dict[str, Any], asked: RoutedRequest, places: tuple[SourceRef, ...]
    ) -> None:
        """The pages of its continuations hold a mark that the caller did not ask for."""
        for member in TOKENS:
            token = answer.get(member)
            if isinstance(token, str) and token:
                self.issued.remember(token + _HIDDEN, asked.attribution, places)

    def mark_is_hidden(self, token: str, who: Attribution) -> bool:
        """Whether the caller did not ask for the mark in the pages of `token`."""
        try:
            self.issued.sources_of(token + _HIDDEN, who)
        except Unresolved:
            return False
        return True


def path_index(asked: RoutedRequest) -> tuple[str, ...]:
    """The names in the first segment of a path that has an index there."""
    return items(asked.path_params[0])


def any_index(asked: RoutedRequest) -> tuple[str, ...]:
    """The same of a path that may do without: then it means all."""
    if asked.target.segments[0][:1] != "_":
        return path_index(asked)
    stated = parameters.parameters(asked.target.query).get("index")
    return (EVERYTHING,) if stated is None else items(stated)


def hint(_server: OpenSearchServer, asked: RoutedRequest) -> SourceRef | None:
    """The index that a write's path names, as far as that can be told without asking."""
    names = asked.path_params[0].split(",")
    if len(names) == 1 and not is_pattern(names[0]):
        return _server.naming.of(names[0])
    return None


def loaded(answer: FetchedResponse) -> Any:
    """The JSON of an answer, None where it is another format's."""
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None


def read_query(asked: RoutedRequest) -> dict[str, str]:
    """The parameters of a request that reads. Only where the path has no place for it may an index
    stand among them: elsewhere one of the two would go unjudged."""
    names = parameters.READ
    if asked.target.segments == _INDEX_IN_QUERY:
        names |= {"index"}
    return parameters.known(asked.target.query, names)


def text_member(body: Any, member: str) -> str:
    """A member of a body that must be a text; `Malformed` where it is none."""
    value = body.get(member) if isinstance(body, dict) else None
    if not isinstance(value, str) or not value:
        raise Malformed(f"`{member}` is not a text")
    return value


def union(one: tuple[SourceRef, ...], other: tuple[SourceRef, ...]) -> tuple[SourceRef, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def objects(body: Any, member: str, error: type[Exception] = Malformed) -> list[dict[str, Any]]:
    """A member that is a list of objects; none is an empty one."""
    found = body.get(member) if isinstance(body, dict) else None
    if found is None and error is Malformed:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise error(f"`{member}` is not a list of objects")
    return found
