"""Where a request to Qdrant names collections and points. Pure; knows no policy.

Qdrant's reader (serde) takes an array for any object of known members, by position: to it
`"lookup_from": ["secret"]` names a collection as `{"collection": "secret"}` does. So what must be
an object here and is none is refused, whatever Qdrant would make of it.
"""

from collections.abc import Callable, Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget

DEEPEST = 32
"""How deep `prefetch` may be nested."""

Request = dict[str, Any]
Examples = Callable[[Request], bool]

# Of a query, what holds no point: conditions, weights, vectors by value, texts to be embedded.
_WITHOUT_POINTS = frozenset((
    "order_by", "fusion", "rrf", "formula", "defaults", "sample", "mmr", "indices", "values",
    "text", "model", "options", "image", "object",
))  # fmt: skip


def searches(body: Request) -> list[Request]:
    """The requests of a batch."""
    found = body.get("searches")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Malformed("`searches` is not a list of objects")
    return found


def parts(request: Request) -> Iterator[Request]:
    """The request, and every `prefetch` in it at every depth."""
    pending: list[tuple[Any, int]] = [(request, 0)]
    while pending:
        part, depth = pending.pop()
        if not isinstance(part, dict):
            raise Malformed("`prefetch` is not an object, or a list of objects")
        if depth > DEEPEST:
            raise Malformed("`prefetch` is nested too deeply")
        yield part
        pending += [(each, depth + 1) for each in prefetches(part)]


def prefetches(part: Request) -> list[Any]:
    """What stands directly in a part's `prefetch`."""
    found = part.get("prefetch")
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def collections(request: Request, budget: Budget) -> Iterator[str]:
    """The collections that a request names besides the one in its path. It and each `prefetch` in
    it are sub-requests. Raises `Malformed` for members whose form may hide a name, or a
    condition."""
    for part in parts(request):
        budget.charge_parts(1)
        _object_or_none(part, "filter")
        _payload_form(part.get("with_payload"))
        location = _object_or_none(part, "lookup_from")
        if location is not None:
            yield _name(location, "lookup_from")
        lookup = part.get("with_lookup")
        if isinstance(lookup, str):
            yield lookup
        elif lookup is not None:
            lookup = _object_or_none(part, "with_lookup")
            assert lookup is not None
            _payload_form(lookup.get("with_payload"))
            yield _name(lookup, "with_lookup")


def queries_by_point(request: Request) -> bool:
    """Whether a point stands for a vector anywhere in a `points/query`: then the answer tells what
    that point is like, whether or not it may be seen. In doubt it does."""
    return any(_query(part.get("query")) for part in parts(request))


def recommends_by_point(request: Request) -> bool:
    """The same of a `points/recommend`."""
    return _recommend(request)


def discovers_by_point(request: Request) -> bool:
    """The same of a `points/discover`."""
    return _discover(request)


def never_by_point(_request: Request) -> bool:
    return False


def _object_or_none(part: Request, name: str) -> Request | None:
    value = part.get(name)
    if value is not None and not isinstance(value, dict):
        raise Malformed(f"`{name}` is not an object")
    return value


def _name(location: Request, member: str) -> str:
    name = location.get("collection")
    if not isinstance(name, str) or not name:
        raise Malformed(f"`{member}.collection` is not a name")
    return name


def _payload_form(value: Any) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, dict) and len(value) == 1 and not value.keys() - {"include", "exclude"}:
        [value] = value.values()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Malformed("`with_payload` is not a boolean, a list of names, or a selector")


def _query(query: Any) -> bool:
    if not isinstance(query, dict):
        return _point(query)
    return any(
        _TELLS[name](value) if name in _TELLS else name not in _WITHOUT_POINTS
        for name, value in query.items()
    )


def _point(value: Any) -> bool:
    """An id where a vector might stand."""
    return value is not None and not isinstance(value, (list, dict))


def _recommend(value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return any(_points(value.get(name)) for name in ("positive", "negative"))


def _points(value: Any) -> bool:
    if value is None:
        return False
    return not isinstance(value, list) or any(_point(each) for each in value)


def _discover(value: Any) -> bool:
    return (
        not isinstance(value, dict) or _point(value.get("target")) or _pairs(value.get("context"))
    )


def _pairs(value: Any) -> bool:
    if value is None:
        return False
    return any(
        not isinstance(pair, dict) or _point(pair.get("positive")) or _point(pair.get("negative"))
        for pair in (value if isinstance(value, list) else [value])
    )


def _feedback(value: Any) -> bool:
    if not isinstance(value, dict) or _point(value.get("target")):
        return True
    items = value.get("feedback")
    return not isinstance(items, list) or any(
        not isinstance(item, dict) or _point(item.get("example")) for item in items
    )


_TELLS: dict[str, Callable[[Any], bool]] = {
    "nearest": _point,
    "recommend": _recommend,
    "discover": _discover,
    "context": _pairs,
    "relevance_feedback": _feedback,
}
