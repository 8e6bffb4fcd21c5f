"""Finds the collections and points that a Qdrant request names, and filters lists of collections
and aliases. A name may be an alias, so the sidecar asks Qdrant which collection it stands for.

Qdrant's parser (serde) accepts an array in place of an object, with the members in order: it reads
`"lookup_from": ["secret"]` as `{"collection": "secret"}`. So a value that should be an object and
isn't one is refused, whatever Qdrant would make of it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.protocol import (
    FetchedResponse,
    ForwardedPart,
    RoutedRequest,
    SourceRef,
    Sources,
    Visibility,
)
from sidecar.protocols.shared.caches import Aliases
from sidecar.protocols.shared.responses import (
    expect_list,
    expect_object,
    expect_text,
    response_object,
    to_json,
)
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.strict_body import Budget
from sidecar.settings.model import Source

MAX_DEPTH = 32
"""The maximum depth to which `prefetch` may be nested."""

Request = dict[str, Any]
UsesPoint = Callable[[Request], bool]
"""Returns whether a request uses a stored point in place of a vector: its response then reveals
what that point is similar to, even if the agent may not see the point itself. True if in doubt."""

FindNames = Callable[[RoutedRequest], list[str]]
"""Returns the names of collections and aliases in a request. Raises `Malformed`."""

# Members of a query that hold no point: conditions, weights, vectors by value, texts to embed.
_WITHOUT_POINTS = frozenset((
    "order_by", "fusion", "rrf", "formula", "defaults", "sample", "mmr", "indices", "values",
    "text", "model", "options", "image", "object",
))  # fmt: skip


def is_batch(request: RoutedRequest) -> bool:
    # The path alone says so: each route accepts only one form.
    return request.target.segments[-1] == "batch"


def requests_of(request: RoutedRequest) -> list[Request]:
    """Return the requests in a body: all requests of a batch, otherwise the body itself. Raises
    `Malformed`."""
    if not is_batch(request):
        return [request.body]
    found = request.body.get("searches")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Malformed("`searches` must be a list of objects")
    return found


def parts(request: Request) -> Iterator[Request]:
    """Yield the request itself, and every `prefetch` in it at any depth. Raises `Malformed`."""
    # A list instead of recursion: the caller chooses the depth.
    pending: list[tuple[Any, int]] = [(request, 0)]
    while pending:
        part, depth = pending.pop()
        if not isinstance(part, dict):
            raise Malformed("`prefetch` must be an object or a list of objects")
        if depth > MAX_DEPTH:
            raise Malformed(f"`prefetch` is nested more than {MAX_DEPTH} levels deep")
        yield part
        pending += [(each, depth + 1) for each in prefetches(part)]


def prefetches(part: Request) -> list[Any]:
    """Return the requests that a request (or `prefetch`) has directly in its member `prefetch`,
    which is one request or a list."""
    found = part.get("prefetch")
    return found if isinstance(found, list) else [] if found is None else [found]


def collections(request: Request, budget: Budget) -> Iterator[str]:
    """Yield the collections that a request names in addition to the one in its path. Raises
    `Malformed` for a member whose form could hide a name or a condition."""
    for part in parts(request):
        # Each `prefetch` is a search of its own, so it counts as a sub-request.
        budget.charge_parts(1)
        # A filter and a payload name no collection, but `filter.py` extends both: their forms are
        # checked here, before the decision.
        _object_or_none(part, "filter")
        _check_payload(part.get("with_payload"))
        location = _object_or_none(part, "lookup_from")
        if location is not None:
            yield _name(location, "lookup_from")
        if isinstance(part.get("with_lookup"), str):
            yield part["with_lookup"]
        elif (lookup := _object_or_none(part, "with_lookup")) is not None:
            _check_payload(lookup.get("with_payload"))
            yield _name(lookup, "with_lookup")


def _object_or_none(part: Request, name: str) -> Request | None:
    value = part.get(name)
    if value is not None and not isinstance(value, dict):
        raise Malformed(f"`{name}` must be an object")
    return value


def _name(location: Request, member: str) -> str:
    name = location.get("collection")
    if not isinstance(name, str) or not name:
        raise Malformed(f"`{member}.collection` must be a string that is not empty")
    return name


def _check_payload(value: Any) -> None:
    if value is None or isinstance(value, bool):
        return
    # If there are both, it isn't clear which one Qdrant uses.
    if isinstance(value, dict) and len(value) == 1 and not value.keys() - {"include", "exclude"}:
        [value] = value.values()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Malformed("`with_payload` must be a boolean, a list of names, or a selector")


def queries_by_point(request: Request) -> bool:
    """Return whether a `points/query` uses a stored point, itself or in any `prefetch`."""
    return any(_query_uses_point(part.get("query")) for part in parts(request))


def recommends_by_point(value: Any) -> bool:
    """Return whether a `points/recommend`, or `recommend` in a query, uses a stored point."""
    if not isinstance(value, dict):
        return True
    return any(_has_point(value.get(name)) for name in ("positive", "negative"))


def discovers_by_point(value: Any) -> bool:
    """Return whether a `points/discover`, or `discover` in a query, uses a stored point."""
    if not isinstance(value, dict):
        return True
    return _is_point(value.get("target")) or _pairs_have_point(value.get("context"))


def _query_uses_point(query: Any) -> bool:
    if not isinstance(query, dict):
        return _is_point(query)
    # An unknown member, which a later version may add, counts as a point.
    return any(
        _USES_POINT[name](value) if name in _USES_POINT else name not in _WITHOUT_POINTS
        for name, value in query.items()
    )


def _is_point(value: Any) -> bool:
    # An id is a number or a UUID; a vector is a list, or an object if it is sparse or a document
    # to embed.
    return value is not None and not isinstance(value, (list, dict))


def _has_point(value: Any) -> bool:
    return value is not None and (not isinstance(value, list) or any(map(_is_point, value)))


def _pairs_have_point(value: Any) -> bool:
    pairs = value if isinstance(value, list) else [] if value is None else [value]
    return any(
        not isinstance(pair, dict) or any(_is_point(pair.get(e)) for e in ("positive", "negative"))
        for pair in pairs
    )


def _feedback_uses_point(value: Any) -> bool:
    if not isinstance(value, dict) or _is_point(value.get("target")):
        return True
    items = value.get("feedback")
    return not isinstance(items, list) or any(
        not isinstance(item, dict) or _is_point(item.get("example")) for item in items
    )


_USES_POINT: dict[str, Callable[[Any], bool]] = {
    "nearest": _is_point,
    "recommend": recommends_by_point,
    "discover": discovers_by_point,
    "context": _pairs_have_point,
    "relevance_feedback": _feedback_uses_point,
}


def parse_aliases(response: Any) -> dict[str, str]:
    """Return a mapping from alias to collection, from the response to `GET /aliases`. Raises
    `UpstreamFailed`."""
    what = "list of aliases"
    result = expect_object(expect_object(response, what).get("result"), what)
    return {
        expect_text(each, "alias_name"): expect_text(each, "collection_name")
        for each in expect_list(result.get("aliases"), what)
    }


def list_filter(
    member: str, name: str, source_names: SourceNames, visibility: Visibility
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return a function that filters the list in `result.<member>` by the collection that each
    element names in its member `name`."""

    def filter_list(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        result = expect_object(whole.get("result"), "result")
        elements = expect_list(result.get(member), "list")
        visible = visible_elements(elements, name, source_names, visibility)
        # If nothing is hidden, the agent gets Qdrant's own bytes.
        if len(visible) == len(elements):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, "result": {**result, member: visible}}))

    return filter_list


def visible_elements(
    elements: list[Any], name: str, source_names: SourceNames, visibility: Visibility
) -> list[Any]:
    """Return the elements of a list whose collection, which each names in its member `name`, the
    agent may see. Raises `UpstreamFailed`."""
    sources = [source_names.of(expect_text(each, name)) for each in elements]
    pairs = zip(elements, sources, strict=True)
    return [each for each, source in pairs if visibility.permits(source)]


class QdrantSources:
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self.source_names = SourceNames(source)
        self._aliases = Aliases(monotonic, "/aliases", parse_aliases)

    async def of_path(self, request: RoutedRequest) -> Sources:
        # The path's second parameter is a point, a field or a vector.
        return self._sources(request.path_params[:1], await self._aliases.fetch(request))

    async def of_body(self, request: RoutedRequest) -> Sources:
        return await self.of_names(request, _names)

    def of_body_now(self, request: RoutedRequest) -> Sources | None:
        return self.of_names_now(request, _names)

    async def of_names(self, request: RoutedRequest, find_names: FindNames) -> Sources:
        """Return the sources that the names in a request stand for."""
        # Read the body before the look-up: a malformed one then costs Qdrant no request.
        names = find_names(request)
        return self._sources(names, await self._aliases.fetch(request))

    def of_names_now(self, request: RoutedRequest, find_names: FindNames) -> Sources | None:
        """Return the sources as `of_names` does, but only if the aliases are cached; otherwise
        None."""
        aliases = self._aliases.cached(request)
        return None if aliases is None else self._sources(find_names(request), aliases)

    def hint(self, request: RoutedRequest) -> SourceRef | None:
        return self.hint_of_name(request, request.path_params[0])

    def hint_of_name(self, request: RoutedRequest, name: str) -> SourceRef:
        # A denied write is worth no look-up: without the aliases it is recorded under its own name.
        aliases = self._aliases.cached(request) or {}
        return self.source_names.of(aliases.get(name, name))

    def forget_names(self) -> None:
        self._aliases.clear()

    def _sources(self, names: Iterable[str], aliases: dict[str, str]) -> Sources:
        # A name that is not an alias is a collection, whether it exists or not.
        found = (self.source_names.of(aliases.get(name, name)) for name in names)
        return tuple(dict.fromkeys(found))


def _names(request: RoutedRequest) -> list[str]:
    # A batch has a single decision, so collect the names of all its requests.
    names = [request.path_params[0]]
    for each in requests_of(request):
        names += collections(each, request.budget)
    return names
