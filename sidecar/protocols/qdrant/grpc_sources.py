"""Finds the collections and points that a call of Qdrant's gRPC interface names. The schema marks
every field that names a collection, so nothing is searched for here by its place; what is added are
the checks that the HTTP interface has too (`sources.py`)."""

from collections.abc import Iterator
from typing import Any

from policies.ground.errors import Malformed
from sidecar.http.grpc.protobuf import Message
from sidecar.protocols.protocol import RoutedRequest
from sidecar.protocols.qdrant.sources import FindNames, Request, parts
from sidecar.protocols.strict_body import Budget

# Where a query may have a stored point, as the member `id`, in place of a vector.
QUERY_INPUTS = (
    "nearest",
    "nearest_with_mmr.nearest",
    "recommend.positive",
    "recommend.negative",
    "discover.target",
    "discover.context.pairs.positive",
    "discover.context.pairs.negative",
    "context.pairs.positive",
    "context.pairs.negative",
    "relevance_feedback.target",
    "relevance_feedback.feedback.example",
)
# The same in the older call `Discover`.
DISCOVER_INPUTS = ("target.single", "context.positive", "context.negative")


def requests_of_call(request: RoutedRequest, batch: str) -> list[Request]:
    """Return the requests in a message: those in its field `batch`, or the message itself if the
    name of this field is empty."""
    values: Request = request.body.values
    return values.get(batch, []) if batch else [values]


def names_of(message: Message) -> FindNames:
    """Return a function that finds the names in calls with this message."""

    def names(request: RoutedRequest) -> list[str]:
        values = request.body.values
        if "collection_name" not in values:
            raise Malformed("the call names no collection")
        return [name.value for name in message.names(values)]

    return names


def names_of_retrieval(message: Message, batch: str) -> FindNames:
    """Return a function that finds the names in calls with this message, which has a retrieval, or
    several in its field `batch`. It charges each of them, and each `prefetch`, as a sub-request."""
    names = names_of(message)

    def checked_names(request: RoutedRequest) -> list[str]:
        for each in requests_of_call(request, batch):
            _check(each, request.budget)
        return names(request)

    return checked_names


def _check(retrieval: Request, budget: Budget) -> None:
    for part in parts(retrieval):
        budget.charge_parts(1)
        _check_payload(part)
        # The name has no presence: a look-up without one is a look-up in the collection "".
        if "lookup_from" in part and "collection_name" not in part["lookup_from"]:
            raise Malformed("`lookup_from` names no collection")
        if "with_lookup" in part:
            _check_payload(part["with_lookup"])
            if "collection" not in part["with_lookup"]:
                raise Malformed("`with_lookup` names no collection")


def _check_payload(part: Request) -> None:
    if part.get("with_payload") == {}:
        raise Malformed("`with_payload` says neither what to include nor what to exclude")


def queries_by_point(request: Request) -> bool:
    """Return whether a `Query` uses a stored point, itself or in any `prefetch`."""
    return any(_has_id(part.get("query", {}), QUERY_INPUTS) for part in parts(request))


def recommends_by_point(request: Request) -> bool:
    """Return whether a `Recommend` uses a stored point."""
    # These two hold ids alone; vectors have fields of their own.
    return "positive" in request or "negative" in request


def discovers_by_point(request: Request) -> bool:
    """Return whether a `Discover` uses a stored point."""
    return _has_id(request, DISCOVER_INPUTS)


def _has_id(values: Request, paths: tuple[str, ...]) -> bool:
    return any("id" in found for path in paths for found in _at(values, path.split(".")))


def _at(values: Request, path: list[str]) -> Iterator[Request]:
    """Yield the messages at `path`, through lists as well."""
    found: list[Any] = [values]
    for name in path:
        within = [each[name] for each in found if name in each]
        found = [each for value in within for each in (value if type(value) is list else [value])]
    yield from found
