"""Filters Qdrant's points by their own level: adds a condition to the query, requests the level's
field in the payload, and checks every point of the response. The condition alone is not enough: in
Qdrant, a payload of `["low", "critical"]` matches `low`.

The rules are the same over HTTP and over gRPC. What is written differently there is in a `Wire`:
`Rest` here, `Grpc` in `grpc_filter.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import orjson

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    ProtocolRoute,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.qdrant.sources import (
    Request,
    UsesPoint,
    prefetches,
    requests_of,
)
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    levels_of,
    response_object,
    to_json,
)


class Payload(NamedTuple):
    """Says how the `with_payload` of one request was changed so that the response holds the level's
    field. `requested` is the value to send; `added` are the paths to remove from each point again,
    because the agent didn't request them."""

    requested: Any
    added: tuple[tuple[str, ...], ...] = ()
    none: bool = False
    """True if the agent requested no payload at all, so that all of it is removed again."""
    prune: bool = False
    """True if objects that are empty without the paths in `added` are removed too."""


class FilteredRequest(NamedTuple):
    """One request as it is forwarded. `payload` says how its points' payload was changed, `lookup`
    the same for the records that it looks up in another collection."""

    body: Request
    payload: Payload
    lookup: Payload


class PayloadFilter:
    """Filters the points of one response by level. `changed` says whether the result differs from
    what the data source sent; `withheld` is the number of points removed."""

    def __init__(self, levels: DocumentLevels) -> None:
        self._levels = levels
        self.withheld = 0
        self.changed = False

    def points(self, value: Any, request: FilteredRequest) -> list[Any]:
        points = [expect_object(each, "point") for each in expect_list(value, "list of points")]
        return [each for each in points if self._admit(each, request.payload)]

    def page(self, value: Any, request: FilteredRequest) -> dict[str, Any]:
        """Return a result of the form `{"points": […]}` with the points that the agent may see."""
        page = _only(value, "points", "next_page_offset")
        return {**page, "points": self.points(page.get("points"), request)}

    def groups(self, value: Any, request: FilteredRequest) -> dict[str, Any]:
        """Return a result of the form `{"groups": [{"hits": […], "lookup": …}]}` with the hits that
        the agent may see. A group without visible hits is dropped."""
        whole = _only(value, "groups")
        visible = []
        for group in expect_list(whole.get("groups"), "list of groups"):
            _only(group, "hits", "id", "lookup")
            group["hits"] = self.points(group.get("hits"), request)
            # Without a visible hit, the group's id alone would show what hidden points contain.
            if not group["hits"]:
                continue
            record = group.get("lookup")
            # The record is from another collection, and has a level of its own.
            found = None if record is None else expect_object(record, "record")
            if found is not None and not self._admit(found, request.lookup):
                del group["lookup"]
            visible.append(group)
        return {**whole, "groups": visible}

    def _admit(self, point: dict[str, Any], payload: Payload) -> bool:
        if not self._levels.may_see(point.get("payload")):
            self.withheld += 1
            self.changed = True
            return False
        # Remove only after the check, which reads the level from here.
        if payload.none:
            self.changed |= point.pop("payload", None) is not None
        for path in payload.added:
            self.changed |= _remove(point.get("payload"), path, prune=payload.prune)
        return True


class RequestForm(NamedTuple):
    filter_result: Callable[[PayloadFilter, Any, FilteredRequest], Any]
    payload_by_default: bool = False
    """True if Qdrant returns payloads to a request without `with_payload`."""
    has_filter: bool = True
    """True if conditions can be added to the request. Points requested by id can only be checked in
    the response."""


PAGE = RequestForm(PayloadFilter.page)
GROUPS = RequestForm(PayloadFilter.groups)
LIST = RequestForm(PayloadFilter.points)
SCROLL = RequestForm(PayloadFilter.page, payload_by_default=True)
RECORDS = RequestForm(PayloadFilter.points, payload_by_default=True, has_filter=False)


class Wire(Protocol):
    """Says how one of Qdrant's interfaces writes requests and responses."""

    def requests(self, request: RoutedRequest) -> list[Request]:
        """Return all requests of a batch, otherwise the one that there is. Raises `Malformed`."""

    def condition(self, levels: DocumentLevels) -> Request:
        """Return the condition of a filter that the level is one of `levels`."""

    def read_selector(self, value: Any) -> Any:
        """Return a `with_payload` in the form that it has over HTTP."""

    def write_selector(self, value: Any) -> Any:
        """Return the opposite of `read_selector`."""

    def write_request(self, request: RoutedRequest, bodies: list[Request]) -> bytes:
        """Return the body of `request` with `bodies` in place of its requests."""

    def payload_filter(self, levels: DocumentLevels) -> "PayloadFilter":
        """Return a filter for one response."""

    def read_response(self, response: FetchedResponse) -> tuple[Request, list[Any]]:
        """Return the response, and the results in it: one for each request. Raises
        `UpstreamFailed`."""

    def write_response(self, whole: Request, visible: list[Any]) -> bytes:
        """Return the response with `visible` in place of its results. Raises `UpstreamFailed`."""


class Rest(NamedTuple):
    """The `Wire` of the HTTP interface."""

    batch: bool

    def requests(self, request: RoutedRequest) -> list[Request]:
        return requests_of(request)

    def condition(self, levels: DocumentLevels) -> Request:
        return {"key": ".".join(levels.path), "match": {"any": list(levels.levels)}}

    def read_selector(self, value: Any) -> Any:
        return value

    def write_selector(self, value: Any) -> Any:
        return value

    def write_request(self, request: RoutedRequest, bodies: list[Request]) -> bytes:
        return orjson.dumps({**request.body, "searches": bodies} if self.batch else bodies[0])

    def payload_filter(self, levels: DocumentLevels) -> PayloadFilter:
        return PayloadFilter(levels)

    def read_response(self, response: FetchedResponse) -> tuple[Request, list[Any]]:
        whole = response_object(response)
        result = whole.get("result")
        return whole, expect_list(result, "result") if self.batch else [result]

    def write_response(self, whole: Request, visible: list[Any]) -> bytes:
        return to_json({**whole, "result": visible if self.batch else visible[0]})


def filtered(
    route: ProtocolRoute, wire: Wire, form: RequestForm, uses_point: UsesPoint
) -> ProtocolRoute:
    """Return `route`, a retrieval, with its points filtered by level. A request that uses a stored
    point as a vector keeps `route` itself, which is judged at `critical`."""

    def plan(
        _qdrant: object, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        forwarded = [narrow(each, levels, wire, form) for each in wire.requests(request)]
        body = wire.write_request(request, [each.body for each in forwarded])
        return ForwardPlan(body, _response_filter(levels, wire, form, forwarded))

    filtering = replace(route, plan_forward=plan, filters_documents=True, forwards_unchanged=True)

    def refine(_qdrant: object, request: RoutedRequest) -> ProtocolRoute:
        # One such search in a batch is enough: the batch has a single decision.
        return route if any(map(uses_point, wire.requests(request))) else filtering

    return replace(filtering, refine=refine)


def unfiltered(route: ProtocolRoute) -> ProtocolRoute:
    """Return the row that `route` is made from, for a source whose documents have no levels."""
    if not route.filters_documents:
        return route
    plain = replace(route, plan_forward=None, refine=None)
    return replace(plain, filters_documents=False, forwards_unchanged=False)


def narrow(
    request: Request, levels: DocumentLevels, wire: Wire, form: RequestForm
) -> FilteredRequest:
    """Return `request` with a condition on levels added, and with the level's field in its
    payload."""

    def widened(part: Request, *, default: bool) -> Payload:
        selector = wire.read_selector(part.get("with_payload"))
        return _payload(selector, levels.path, default=default)

    payload = widened(request, default=form.payload_by_default)
    body = dict(request)
    # Where documents without a level are visible, no condition matches exactly the visible ones:
    # only the response is filtered.
    if form.has_filter and levels.filterable:
        body = _filtered(request, wire.condition(levels))
    body["with_payload"] = wire.write_selector(payload.requested)
    lookup = request.get("with_lookup")
    if lookup is None:
        return FilteredRequest(body, payload, payload)
    if isinstance(lookup, str):
        lookup = {"collection": lookup}
    # Qdrant returns the payload of a looked-up record unless the request says otherwise.
    lookup_payload = widened(lookup, default=True)
    requested = wire.write_selector(lookup_payload.requested)
    body["with_lookup"] = {**lookup, "with_payload": requested}
    return FilteredRequest(body, payload, lookup_payload)


def _response_filter(
    levels: DocumentLevels, wire: Wire, form: RequestForm, forwarded: list[FilteredRequest]
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return the function that filters the response to `forwarded`: to one request, or to a batch
    of them."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole, results = wire.read_response(response)
        # Only their order matches results to requests, so a missing one would shift the rest.
        if len(results) != len(forwarded):
            count = f"{len(results)} results for {len(forwarded)} requests"
            raise UpstreamFailed(f"the data source returned {count}")
        payload_filter = wire.payload_filter(levels)
        pairs = zip(results, forwarded, strict=True)
        visible = [form.filter_result(payload_filter, *pair) for pair in pairs]
        # Serialized only if it changed: otherwise the agent gets Qdrant's own bytes.
        changed = payload_filter.changed
        body = wire.write_response(whole, visible) if changed else response.body
        return ForwardedPart(body, payload_filter.withheld)

    return filter_response


def _only(value: Any, *members: str) -> dict[str, Any]:
    """Return `value` if it is an object with no members but these. Raises `UpstreamFailed`
    otherwise: an unknown member might hold points."""
    checked = expect_object(value, "result")
    if unknown := checked.keys() - set(members):
        name = min(unknown)[:64]
        raise UpstreamFailed(f"the data source's result has the unknown member `{name}`")
    return checked


def _filtered(part: Request, condition: Request) -> Request:
    """Return `part`, a request or a `prefetch`, with the condition added to the caller's own
    filter, here and in every `prefetch` within."""
    own = part.get("filter") or {}
    # `must` applies whatever else the filter has. Qdrant accepts one condition or a list.
    must = own.get("must", [])
    if not isinstance(must, list):
        must = [] if must is None else [must]
    filtered = {**part, "filter": {**own, "must": [condition, *must]}}
    # Each `prefetch` selects candidates on its own, whatever the outer filter says
    # (`protocols/RULES.md`, Qdrant). `sources.py` has already limited the depth.
    nested = [_filtered(each, condition) for each in prefetches(part)]
    if nested:
        filtered["prefetch"] = nested
    return filtered


def _payload(value: Any, path: tuple[str, ...], *, default: bool) -> Payload:
    """Return the caller's `with_payload` (`value`), widened so that it covers the level's
    `path`."""
    if value is None:
        value = default
    if isinstance(value, bool):
        return Payload(True) if value else Payload([".".join(path)], none=True)
    if isinstance(value, dict) and "exclude" in value:
        # Request the excluded paths that hide the level after all, and remove them afterwards.
        hiding = {name for name in value["exclude"] if _covers(name, path)}
        rest = [name for name in value["exclude"] if name not in hiding]
        added = tuple(tuple(name.split(".")) for name in hiding)
        return Payload({"exclude": rest} if rest else True, added)
    names = value["include"] if isinstance(value, dict) else value
    if any(_covers(name, path) for name in names):
        return Payload(value)
    return Payload([*names, ".".join(path)], (path,), prune=True)


def _covers(name: str, path: tuple[str, ...]) -> bool:
    parts = tuple(name.split("."))
    return path[: len(parts)] == parts


def _remove(payload: Any, path: tuple[str, ...], *, prune: bool) -> bool:
    """Remove the value at `path`. Returns whether it existed: a document without a level has no
    such value. With `prune`, objects that become empty are removed too."""
    parents = []
    for name in path[:-1]:
        if not isinstance(payload, dict) or name not in payload:
            return False
        parents.append((payload, name))
        payload = payload[name]
    if not isinstance(payload, dict) or path[-1] not in payload:
        return False
    del payload[path[-1]]
    # Requesting `acl.level` made Qdrant return `acl` around it too.
    while prune and parents and not payload:
        payload, name = parents.pop()
        del payload[name]
    return True
