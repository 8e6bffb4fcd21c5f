"""Routes and error responses for Milvus' REST API (`protocols/RULES.md`, Milvus; the handlers of
Milvus' `httpserver`, version 2 of the API). Every request is a POST of a JSON object, which names
the database, the collection and the partitions. Errors are a code and a message."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import orjson

from sidecar.protocols.milvus import entity_filter, names
from sidecar.protocols.milvus.grpc_routes import GRPC_ROUTES
from sidecar.protocols.milvus.names import Given, Names, Target
from sidecar.protocols.milvus.sources import MilvusSources, finder, finder_now, given, hinted
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    SourceRef,
    Visibility,
)
from sidecar.protocols.shared.responses import (
    error_response,
    expect_list,
    levels_of,
    response_object,
    to_json,
)
from sidecar.protocols.strict_body import json_object
from sidecar.settings.model import Source

# Milvus' own codes: privilege not permitted, invalid parameter, service unavailable.
_CODES = {400: 1100, 403: 1401, 413: 1100}
_UNAVAILABLE = 2


class Milvus(MilvusSources, SourceProtocol):
    reads_grpc = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self.table = _TABLE if self.filters_levels else _TABLE_WITHOUT_LEVELS

    def render_refusal(
        self, _request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        return error_response(refusal, {"code": _CODES.get(refusal.status, _UNAVAILABLE)})

    def refine_creation(self, request: RoutedRequest) -> ProtocolRoute:
        """Return the route for the creation of a collection. One whose entities come from another
        storage gets the route for copies, which is denied: the data would later be judged by a
        different name."""
        schema = request.body.get("schema")
        members = [*request.body, *(schema if isinstance(schema, dict) else ())]
        return _COPY if any(each.lower().startswith("external") for each in members) else _CREATE

    def plan_databases(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        return _list_plan(visibility, self.source_names.of)

    def plan_collections(
        self, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        database = given(request).named_database()
        return _list_plan(visibility, lambda name: self.source_names.of(database, name))

    def plan_partitions(
        self, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        parts = self.parts_of(request)
        return _list_plan(visibility, lambda name: self.source_names.of(*parts, name))


def _list_plan(visibility: Visibility, source_of: Callable[[str], SourceRef]) -> ForwardPlan:
    """Return the plan that filters a list of names, `{"data": [name]}`."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        found = expect_list(whole.get("data") or [], "list of names")
        visible = [each for each in found if visibility.permits(source_of(str(each)))]
        # A list without a hidden name passes as Milvus wrote it, byte for byte.
        if len(visible) == len(found):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, "data": visible}))

    return ForwardPlan(filter_response=filter_response)


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN = RouteClass.BULK, RouteClass.ADMIN
_change = Milvus.forget_names

_V2 = "/v2/vectordb"


def _row(path: str, route_class: RouteClass, found: Names) -> ProtocolRoute:
    row = ProtocolRoute(
        "POST", f"{_V2}/{path}", route_class, finder(found), parse_body=json_object,
        find_sources_now=finder_now(found),
    )  # fmt: skip
    return hinted(row, found) if route_class is _WRITE else row


def _rows(
    route_class: RouteClass, found: Names, category: str, actions: str
) -> Iterator[ProtocolRoute]:
    return (_row(f"{category}/{each}", route_class, found) for each in actions.split())


def _closed(route_class: RouteClass, category: str, actions: str) -> Iterator[ProtocolRoute]:
    paths = (f"{_V2}/{category}/{each}" for each in actions.split())
    return (ProtocolRoute("POST", path, route_class) for path in paths)


def _filtered_row(unfiltered: ProtocolRoute, form: entity_filter.Form) -> ProtocolRoute:
    """Return the row for the same retrieval as `unfiltered`, but with its entities filtered."""

    def plan(
        _milvus: Milvus, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        narrowed = entity_filter.narrow(request.body, levels, form)
        return ForwardPlan(
            orjson.dumps(narrowed.body), entity_filter.response_filter(levels, narrowed)
        )

    filtering = replace(
        unfiltered, plan_forward=plan, filters_documents=True, forwards_unchanged=True
    )

    def refine(_milvus: Milvus, request: RoutedRequest) -> ProtocolRoute:
        # A request that can't be narrowed gets the unfiltered row, which is judged at `critical`.
        return filtering if entity_filter.can_filter(request.body, form) else unfiltered

    return replace(filtering, refine=refine)


def _renaming(row: ProtocolRoute) -> ProtocolRoute:
    # Names are forgotten before and after: a look-up in between could have cached either meaning.
    return replace(row, before_forward=_change, after_forward=_change)


def _no_names(_given: Given) -> list[Target]:
    return []


_one, _part, _parts = names.of_collection, names.of_partition, names.of_partitions

_CREATE = _renaming(_row("collections/create", _WRITE, _one))
_COPY = ProtocolRoute("POST", f"{_V2}/collections/create", _BULK)

_RETRIEVALS = (
    (_row("entities/search", _RETRIEVE, _parts), entity_filter.SEARCH),
    (_row("entities/hybrid_search", _RETRIEVE, names.of_search), entity_filter.HYBRID),
    # The older name of the same.
    (_row("entities/advanced_search", _RETRIEVE, names.of_search), entity_filter.HYBRID),
    (_row("entities/query", _RETRIEVE, _parts), entity_filter.QUERY),
    (_row("entities/get", _RETRIEVE, _parts), entity_filter.GET),
)
_OTHERS = (
    replace(_row("databases/list", _METADATA, _no_names), plan_forward=Milvus.plan_databases),
    replace(_row("collections/list", _METADATA, _no_names), plan_forward=Milvus.plan_collections),
    replace(_row("partitions/list", _METADATA, _one), plan_forward=Milvus.plan_partitions),
    _row("databases/describe", _METADATA, names.of_database),
    *_rows(_METADATA, _one, "collections", "has describe get_stats"),
    _row("collections/get_load_state", _METADATA, _parts),
    # Loading makes entities readable, and changes none: clients do it before they search.
    *_rows(_METADATA, _one, "collections", "load refresh_load"),
    _row("partitions/load", _METADATA, _parts),
    *_rows(_METADATA, _part, "partitions", "has get_stats"),
    *_rows(_METADATA, _one, "indexes", "list describe"),
    # Without a collection, a list of aliases would be of every collection: it is denied.
    _row("aliases/list", _METADATA, _one),
    _row("aliases/describe", _METADATA, names.of_alias),
    *_rows(_WRITE, _part, "entities", "insert upsert delete"),
    replace(_CREATE, refine=Milvus.refine_creation),
    _renaming(_row("collections/drop", _WRITE, _one)),
    _renaming(_row("collections/rename", _WRITE, names.of_renamed)),
    *_rows(
        _WRITE, _one, "collections",
        "truncate release alter_properties drop_properties add_function alter_function "
        "drop_function add_function_field drop_function_field compact flush",
    ),
    *_rows(_WRITE, _one, "collections/fields", "alter_properties add drop"),
    _row("collections/struct_fields/add", _WRITE, _one),
    *_rows(_WRITE, _part, "partitions", "create drop"),
    _row("partitions/release", _WRITE, _parts),
    *_rows(_WRITE, _one, "indexes", "create drop alter_properties drop_properties"),
    # Points a name at another collection.
    *_closed(_ADMIN, "aliases", "create alter drop"),
    *_closed(_ADMIN, "databases", "create drop alter alter_properties drop_properties"),
    *_closed(_ADMIN, "users", "list describe create update_password drop grant_role revoke_role"),
    *_closed(
        _ADMIN, "roles",
        "list describe create alter drop grant_privilege revoke_privilege grant_privilege_v2 "
        "revoke_privilege_v2",
    ),
    *_closed(
        _ADMIN, "privilege_groups",
        "create drop list add_privileges_to_group remove_privileges_from_group",
    ),
    *_closed(_ADMIN, "resource_groups", "create drop alter describe list transfer_replica"),
    *_closed(_ADMIN, "file_resources", "add remove list"),
    # These name a job or segments by their numbers, or concern every collection.
    *_closed(_ADMIN, "collections", "get_compaction_state"),
    *_closed(_ADMIN, "segments", "describe"),
    *_closed(_ADMIN, "quotacenter", "describe"),
    *_closed(_ADMIN, "common", "run_analyzer"),
    # Copies of whole collections, to and from other storage.
    *_closed(_BULK, "jobs/import", "list create get_progress describe commit abort"),
    *_closed(_BULK, "jobs/snapshot", "restore_external export describe list"),
    *_closed(_BULK, "jobs/external_collection", "refresh describe list"),
    *_closed(_BULK, "snapshots", "create drop list describe restore"),
)  # fmt: skip

# INVARIANT: a route that is not listed is denied as `unclassified_route`, so that an upgrade of
# Milvus opens nothing by itself.
REST_ROUTES = (*(_filtered_row(row, form) for row, form in _RETRIEVALS), *_OTHERS)
ROUTES = (*REST_ROUTES, *GRPC_ROUTES)

_TABLE = RouteTable(ROUTES)
# Without `sensitivity_field` nothing is filtered, and no retrieval has anything to refine.
_TABLE_WITHOUT_LEVELS = RouteTable((*(row for row, _ in _RETRIEVALS), *_OTHERS, *GRPC_ROUTES))
