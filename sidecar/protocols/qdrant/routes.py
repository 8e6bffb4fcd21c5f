"""Qdrant's HTTP API (data-sources.md 5.2; Qdrant 1.19's own description and `src/actix/api`).

A request names a collection in its path and may name more in its body, to look up vectors or
records there (`qdrant_places.py`, `qdrant_references.py`).

The table at the end holds every route of the description, and those that Qdrant still serves
without describing them. Knows Qdrant's routes; judges nothing.
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
    narrowed,
    reading,
    reading_each,
)
from sidecar.protocols.qdrant.lists import listed
from sidecar.protocols.qdrant.references import (
    Examples,
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
        self._table = _PLAIN if source.sensitivity_field is None else _TABLE

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return self._table.match(method, target)

    def created(self, asked: RoutedRequest) -> ProtocolRoute:
        """A collection made from another is a copy of it, and would be judged by another name."""
        copies = asked.body is not None and asked.body.get("init_from") is not None
        return _COPY if copies else _CREATE

    def collections_listed(
        self, _asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        """`{"collections": [{"name"}]}`, as far as they may be seen."""
        return ForwardPlan(filter_response=listed("collections", "name", self._naming, sight))

    def aliases_listed(
        self, _asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        """`{"aliases": [{"alias_name", "collection_name"}]}`, as far as their targets may be."""
        return ForwardPlan(
            filter_response=listed("aliases", "collection_name", self._naming, sight)
        )


def _one(path: str, form: RequestForm, examples: Examples = never_by_point) -> ProtocolRoute:
    """A retrieval whose body is one request."""

    def prepared(
        _qdrant: Qdrant, asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        marks = levels_of(sight)
        if marks is None:
            return FORWARD_UNCHANGED
        ask = narrowed(asked.body, marks, form)
        return ForwardPlan(orjson.dumps(ask.body), reading(marks, form, ask))

    return _sieved(path, False, prepared, examples)


def _batch(path: str, form: RequestForm, examples: Examples = never_by_point) -> ProtocolRoute:
    """A retrieval whose body is a list of requests."""

    def prepared(
        _qdrant: Qdrant, asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        marks = levels_of(sight)
        if marks is None:
            return FORWARD_UNCHANGED
        asks = [narrowed(each, marks, form) for each in searches(asked.body)]
        body = {**asked.body, "searches": [ask.body for ask in asks]}
        return ForwardPlan(orjson.dumps(body), reading_each(marks, form, asks))

    def any_of(body: dict[str, Any]) -> bool:
        return any(examples(each) for each in searches(body))

    return _sieved(path, True, prepared, any_of)


def _sieved(path: str, batch: bool, prepared: Any, examples: Examples) -> ProtocolRoute:
    """A row that leaves out what may not be seen. A request that puts a point in a vector's place
    is another row: its answer tells what that point is like, so all of it is judged as one."""
    sharp = replace(_plain(path, batch=batch), plan_forward=prepared, filters_documents=True)
    blunt = _plain(path, batch=batch)

    def refined(_qdrant: Qdrant, asked: RoutedRequest) -> ProtocolRoute:
        return blunt if examples(asked.body) else sharp

    return replace(sharp, refine=refined, find_sources_now=None)


def _plain(path: str, *, batch: bool = False) -> ProtocolRoute:
    """A row that returns whatever is there."""
    places, known = (
        (Qdrant.of_batch, Qdrant.known_batch)
        if batch
        else (Qdrant.of_request, Qdrant.known_request)
    )
    return ProtocolRoute(
        "POST", path, _RETRIEVE, places, parse_body=json_object, find_sources_now=known
    )


def _unmarked(route: ProtocolRoute) -> ProtocolRoute:
    """The row of a data source whose documents have no level of their own: nothing is left out, so
    it makes no difference how a request is put."""
    batch = route.find_sources is Qdrant.of_batch
    return _plain(route.pattern, batch=batch) if route.filters_documents else route


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_path, _hint, _change = Qdrant.of_path, Qdrant.hint, Qdrant.names_change

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


# INVARIANT: a literal segment stands above a `{parameter}` in its place, as in Qdrant's own router.
# What is not here is denied as `unclassified_route`: a newer Qdrant opens nothing by itself.
ROUTES = (
    _one(f"{_P}/query", PAGE, queries_by_point),
    _batch(f"{_P}/query/batch", PAGE, queries_by_point),
    _one(f"{_P}/query/groups", GROUPS, queries_by_point),
    _one(f"{_P}/search", LIST),
    _batch(f"{_P}/search/batch", LIST),
    _one(f"{_P}/search/groups", GROUPS),
    _one(f"{_P}/recommend", LIST, recommends_by_point),
    _batch(f"{_P}/recommend/batch", LIST, recommends_by_point),
    _one(f"{_P}/recommend/groups", GROUPS, recommends_by_point),
    _one(f"{_P}/discover", LIST, discovers_by_point),
    _batch(f"{_P}/discover/batch", LIST, discovers_by_point),
    _one(f"{_P}/scroll", SCROLL),
    _one(_P, RECORDS),
    _one(f"{_S}/points", RECORDS),
    _one(f"{_S}/points/scroll", SCROLL),
    # A hidden point would have to look like one that is not there, which has a status of its own.
    ProtocolRoute("GET", f"{_P}/{{id}}", _RETRIEVE, _path),
    # Numbers and ids without payload: nothing in the answer could prove what it was made of.
    _plain(f"{_P}/count"),
    _plain(f"{_S}/points/count"),
    _plain(f"{_P}/search/matrix/pairs"),
    _plain(f"{_P}/search/matrix/offsets"),
    _plain(f"{_C}/facet"),
    ProtocolRoute("GET", "/collections", _METADATA, plan_forward=Qdrant.collections_listed),
    ProtocolRoute("GET", "/aliases", _METADATA, plan_forward=Qdrant.aliases_listed),
    ProtocolRoute("GET", _C, _METADATA, _path),
    *(
        ProtocolRoute("GET", f"{_C}/{what}", _METADATA, _path)
        for what in ("aliases", "exists", "cluster", "optimizations", "shards")
    ),
    replace(_CREATE, refine=Qdrant.created),
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
    # Points a name to another collection.
    ProtocolRoute("POST", "/collections/aliases", _ADMIN),
    ProtocolRoute("POST", f"{_C}/cluster", _ADMIN),
    ProtocolRoute("PUT", f"{_C}/shards", _ADMIN),
    ProtocolRoute("POST", f"{_C}/shards/delete", _ADMIN),
    ProtocolRoute("POST", f"{_S}/cleanup", _ADMIN),
    # They tell of every collection at once.
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
_PLAIN = RouteTable(map(_unmarked, ROUTES))
