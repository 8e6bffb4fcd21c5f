"""Qdrant's HTTP API (data-sources.md 5.2; Qdrant 1.19's OpenAPI description and `src/actix/api`).

A request names a collection in its path, and may name more in its body, to look up vectors or
records there (`sources.py`, `references.py`).

The table at the end lists every described route, and those that Qdrant serves without describing
them; its length makes this file long. Knows Qdrant's routes; decides nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from sidecar.http.request_target import Target
from sidecar.protocols.messages import FORWARD_UNCHANGED, ForwardPlan, RoutedRequest, Visibility
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.qdrant.filter import (
    GROUPS,
    LIST,
    PAGE,
    RECORDS,
    SCROLL,
    RequestForm,
    batch_response_filter,
    narrow,
    response_filter,
)
from sidecar.protocols.qdrant.lists import list_filter
from sidecar.protocols.qdrant.references import (
    UsesPoint,
    discovers_by_point,
    never_by_point,
    queries_by_point,
    recommends_by_point,
    searches,
)
from sidecar.protocols.qdrant.sources import QdrantSources
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch, RouteTable
from sidecar.protocols.shared.document_levels import levels_of
from sidecar.protocols.strict_body import json_object, optional_json_object
from sidecar.settings.model import Source


class Qdrant(QdrantSources, SourceProtocol):
    """One Qdrant server."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._table = _TABLE_WITHOUT_LEVELS if source.sensitivity_field is None else _TABLE

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return self._table.match(method, target)

    def refine_creation(self, request: RoutedRequest) -> ProtocolRoute:
        """The row of a creation. A collection made from another (`init_from`) is a copy, which
        would be judged by a different name."""
        copies = request.body is not None and request.body.get("init_from") is not None
        return _COPY if copies else _CREATE

    def plan_collections(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        """Filters `{"collections": [{"name"}]}`."""
        return ForwardPlan(
            filter_response=list_filter("collections", "name", self._naming, visibility)
        )

    def plan_aliases(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        """Filters `{"aliases": [{"alias_name", "collection_name"}]}` by each alias's collection."""
        return ForwardPlan(
            filter_response=list_filter("aliases", "collection_name", self._naming, visibility)
        )


def _request_route(
    path: str, form: RequestForm, uses_point: UsesPoint = never_by_point
) -> ProtocolRoute:
    """A retrieval whose body is one request."""

    def plan(
        _qdrant: Qdrant, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        forwarded = narrow(request.body, levels, form)
        return ForwardPlan(orjson.dumps(forwarded.body), response_filter(levels, form, forwarded))

    return _filtered_route(path, False, plan, uses_point)


def _batch_route(
    path: str, form: RequestForm, uses_point: UsesPoint = never_by_point
) -> ProtocolRoute:
    """A retrieval whose body is a list of requests."""

    def plan(
        _qdrant: Qdrant, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        forwarded = [narrow(each, levels, form) for each in searches(request.body)]
        body = {**request.body, "searches": [each.body for each in forwarded]}
        return ForwardPlan(orjson.dumps(body), batch_response_filter(levels, form, forwarded))

    def any_of(body: dict[str, Any]) -> bool:
        return any(uses_point(each) for each in searches(body))

    return _filtered_route(path, True, plan, any_of)


def _filtered_route(path: str, batch: bool, plan: Any, uses_point: UsesPoint) -> ProtocolRoute:
    """A row that filters documents. A request that uses a stored point as a vector gets an
    unfiltered row, which is judged at `critical`: its response reveals what that point is similar
    to."""
    unfiltered = _unfiltered_route(path, batch=batch)
    filtered = replace(unfiltered, plan_forward=plan, filters_documents=True)

    def refine(_qdrant: Qdrant, request: RoutedRequest) -> ProtocolRoute:
        return unfiltered if uses_point(request.body) else filtered

    return replace(filtered, refine=refine, find_sources_now=None)


def _unfiltered_route(path: str, *, batch: bool = False) -> ProtocolRoute:
    """A row that doesn't filter documents."""
    find, cached = Qdrant.of_request, Qdrant.cached_request
    if batch:
        find, cached = Qdrant.of_batch, Qdrant.cached_batch
    return ProtocolRoute(
        "POST", path, _RETRIEVE, find, parse_body=json_object, find_sources_now=cached
    )


def _without_levels(route: ProtocolRoute) -> ProtocolRoute:
    """The row for a data source without `sensitivity_field`: nothing is filtered, so all requests
    of a route share one row."""
    batch = route.find_sources is Qdrant.of_batch
    return _unfiltered_route(route.pattern, batch=batch) if route.filters_documents else route


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_path, _hint, _change = Qdrant.of_path, Qdrant.hint, Qdrant.forget_names

_C = "/collections/{collection}"
_P = f"{_C}/points"
_S = f"{_C}/shards/{{shard}}"

_CREATE = ProtocolRoute(
    "PUT",
    _C,
    _WRITE,
    _path,
    _hint,
    parse_body=optional_json_object,
    before_forward=_change,
    after_forward=_change,
)
_COPY = ProtocolRoute("PUT", _C, _BULK)


def _write(methods: str, path: str) -> ProtocolRoute:
    return ProtocolRoute(methods, path, _WRITE, _path, _hint)


# INVARIANT: a literal segment comes before a `{parameter}` in the same position, as in Qdrant's own
# router. A route that is not listed is denied as `unclassified_route`, so that an upgrade of
# Qdrant opens nothing by itself.
ROUTES = (
    _request_route(f"{_P}/query", PAGE, queries_by_point),
    _batch_route(f"{_P}/query/batch", PAGE, queries_by_point),
    _request_route(f"{_P}/query/groups", GROUPS, queries_by_point),
    _request_route(f"{_P}/search", LIST),
    _batch_route(f"{_P}/search/batch", LIST),
    _request_route(f"{_P}/search/groups", GROUPS),
    _request_route(f"{_P}/recommend", LIST, recommends_by_point),
    _batch_route(f"{_P}/recommend/batch", LIST, recommends_by_point),
    _request_route(f"{_P}/recommend/groups", GROUPS, recommends_by_point),
    _request_route(f"{_P}/discover", LIST, discovers_by_point),
    _batch_route(f"{_P}/discover/batch", LIST, discovers_by_point),
    _request_route(f"{_P}/scroll", SCROLL),
    _request_route(_P, RECORDS),
    _request_route(f"{_S}/points", RECORDS),
    _request_route(f"{_S}/points/scroll", SCROLL),
    # Not filtered: withholding a point would have to imitate Qdrant's 404 for one that doesn't
    # exist.
    ProtocolRoute("GET", f"{_P}/{{id}}", _RETRIEVE, _path),
    # Not filtered: numbers and ids without payload don't show which points they were made from.
    _unfiltered_route(f"{_P}/count"),
    _unfiltered_route(f"{_S}/points/count"),
    _unfiltered_route(f"{_P}/search/matrix/pairs"),
    _unfiltered_route(f"{_P}/search/matrix/offsets"),
    _unfiltered_route(f"{_C}/facet"),
    ProtocolRoute("GET", "/collections", _METADATA, plan_forward=Qdrant.plan_collections),
    ProtocolRoute("GET", "/aliases", _METADATA, plan_forward=Qdrant.plan_aliases),
    ProtocolRoute("GET", _C, _METADATA, _path),
    *(
        ProtocolRoute("GET", f"{_C}/{what}", _METADATA, _path)
        for what in ("aliases", "exists", "cluster", "optimizations", "shards")
    ),
    replace(_CREATE, refine=Qdrant.refine_creation),
    _write("PATCH", _C),
    ProtocolRoute(
        "DELETE", _C, _WRITE, _path, _hint, before_forward=_change, after_forward=_change
    ),
    _write("PUT", _P),
    *(
        _write("POST", f"{_P}/{what}")
        for what in ("batch", "delete", "payload", "payload/clear", "payload/delete")
    ),
    _write("PUT", f"{_P}/payload"),
    _write("PUT", f"{_P}/vectors"),
    _write("POST", f"{_P}/vectors/delete"),
    _write("PUT", f"{_C}/index"),
    _write("DELETE", f"{_C}/index/{{field}}"),
    _write("PUT DELETE", f"{_C}/vectors/{{vector}}"),
    ProtocolRoute("GET POST", f"{_C}/snapshots", _BULK),
    ProtocolRoute("POST", f"{_C}/snapshots/upload", _BULK),
    ProtocolRoute("PUT", f"{_C}/snapshots/recover", _BULK),
    ProtocolRoute("GET DELETE", f"{_C}/snapshots/{{snapshot}}", _BULK),
    ProtocolRoute("GET", f"{_S}/snapshot", _BULK),
    ProtocolRoute("GET POST", f"{_S}/snapshot/partial/{{what}}", _BULK),
    ProtocolRoute("GET POST", f"{_S}/snapshots", _BULK),
    ProtocolRoute("POST", f"{_S}/snapshots/upload", _BULK),
    ProtocolRoute("PUT", f"{_S}/snapshots/recover", _BULK),
    ProtocolRoute("GET DELETE", f"{_S}/snapshots/{{snapshot}}", _BULK),
    ProtocolRoute("GET POST", "/snapshots", _BULK),
    ProtocolRoute("GET DELETE", "/snapshots/{snapshot}", _BULK),
    # Re-points a name to another collection.
    ProtocolRoute("POST", "/collections/aliases", _ADMIN),
    ProtocolRoute("POST", f"{_C}/cluster", _ADMIN),
    ProtocolRoute("PUT", f"{_C}/shards", _ADMIN),
    ProtocolRoute("POST", f"{_C}/shards/delete", _ADMIN),
    ProtocolRoute("POST", f"{_S}/cleanup", _ADMIN),
    # They reveal something about every collection at once.
    *(
        ProtocolRoute("GET", f"/{what}", _ADMIN)
        for what in ("telemetry", "metrics", "cluster", "stacktrace", "cluster/telemetry")
    ),
    ProtocolRoute("GET POST", "/locks", _ADMIN),
    ProtocolRoute("GET POST", "/logger", _ADMIN),
    ProtocolRoute("GET DELETE", "/issues", _ADMIN),
    ProtocolRoute("GET PUT", "/quotas", _ADMIN),
    ProtocolRoute("POST", "/cluster/recover", _ADMIN),
    ProtocolRoute("DELETE", "/cluster/peer/{peer}", _ADMIN),
    ProtocolRoute("GET", "/", _OPEN),
    *(ProtocolRoute("GET", f"/{what}", _OPEN) for what in ("healthz", "livez", "readyz")),
)

_TABLE = RouteTable(ROUTES)
_TABLE_WITHOUT_LEVELS = RouteTable(map(_without_levels, ROUTES))
