"""Weaviate's HTTP API (data-sources.md 5.4; Weaviate 1.40's description and handlers).

A GraphQL request reads as many collections as it has fields, filters and references
(`weaviate_graphql.py`); a REST request names its collection in the path, the query or the body
(`weaviate_places.py`).

The table at the end holds the routes that agents use, and those that are closed with a reason.
Knows Weaviate's routes; judges nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from sidecar.http.request_target import Target
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    DenialResponse,
    FetchedResponse,
    ForwardPlan,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch, RouteTable
from sidecar.protocols.shared.document_levels import levels_of
from sidecar.protocols.strict_body import BodyParser, json_object
from sidecar.protocols.weaviate import mcp
from sidecar.protocols.weaviate.filter import narrowed, plain, reading, reading_objects
from sidecar.protocols.weaviate.graphql import GraphqlQuery, read
from sidecar.protocols.weaviate.lists import listed, nodes_listed, tenants_listed
from sidecar.protocols.weaviate.names import collection, json_array
from sidecar.protocols.weaviate.sources import WeaviateSources
from sidecar.settings.model import Source


class Weaviate(WeaviateSources, SourceProtocol):
    """One Weaviate server."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._mark = source.sensitivity_field

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return _TABLE.match(method, target)

    def render_denial(
        self, asked: RoutedRequest | None, refusal: DenialResponse
    ) -> FetchedResponse | None:
        if asked is None or asked.target.segments != ("v1", "mcp"):
            return None
        return mcp.refusal(asked.body, refusal)

    def narrows(self, queries: list[GraphqlQuery]) -> bool:
        """Whether these can be narrowed; others are judged as if they returned everything."""
        mark = self._mark
        return mark is not None and all(plain(each, mark) for each in queries)

    def called(self, asked: RoutedRequest) -> ProtocolRoute | None:
        """The row of a message of MCP."""
        return _MCP.get(mcp.kind(asked.body))

    def printed(self, asked: RoutedRequest, _places: object, _sight: Visibility) -> ForwardPlan:
        """A request in the form in which it was judged."""
        return ForwardPlan(_written(asked, [each.printed() for each in asked.body]))

    def narrowed(self, asked: RoutedRequest, places: object, sight: Visibility) -> ForwardPlan:
        """The same, so that only what may be seen comes back."""
        marks = levels_of(sight)
        if marks is None:
            return self.printed(asked, places, sight)
        made = [narrowed(each, marks) for each in asked.body]
        body = _written(asked, [each.body for each in made])
        return ForwardPlan(body, reading(marks, made, batch=_is_batch(asked)))

    def objects_seen(
        self, _asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        marks = levels_of(sight)
        return (
            FORWARD_UNCHANGED
            if marks is None
            else ForwardPlan(filter_response=reading_objects(marks))
        )

    def classes_listed(
        self, _asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        return ForwardPlan(filter_response=listed("classes", "class", self._naming, sight))

    def aliases_listed(
        self, _asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        return ForwardPlan(filter_response=listed("aliases", "class", self._naming, sight))

    def tenants_listed(
        self, asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        name = self._target(collection(asked.path_params[0]), asked)
        return ForwardPlan(filter_response=tenants_listed(name, self._naming, sight))

    def nodes_listed(
        self, _asked: RoutedRequest, _places: object, sight: Visibility
    ) -> ForwardPlan:
        return ForwardPlan(filter_response=nodes_listed(self._naming, sight))


def _is_batch(asked: RoutedRequest) -> bool:
    return asked.target.segments[-1] == "batch"


def _written(asked: RoutedRequest, bodies: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(bodies if _is_batch(asked) else bodies[0])


def _one_query(raw: bytes, media: str | None, budget: Budget) -> list[GraphqlQuery]:
    return [read(json_object(raw, media), budget)]


def _queries(raw: bytes, media: str | None, budget: Budget) -> list[GraphqlQuery]:
    return [read(each, budget) for each in json_array(raw, media, budget)]


_RETRIEVE, _METADATA, _WRITE = RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.WRITE
_BULK, _ADMIN, _OPEN = RouteClass.BULK, RouteClass.ADMIN, RouteClass.OPEN
_path, _tenant, _hint, _change = (
    WeaviateSources.of_path,
    WeaviateSources.of_tenant,
    WeaviateSources.hint,
    WeaviateSources.names_change,
)

_V1 = "/v1"
_O, _ONE = f"{_V1}/objects", f"{_V1}/objects/{{class}}/{{id}}"
_S, _C = f"{_V1}/schema", f"{_V1}/schema/{{class}}"
_REFERENCES = f"{_ONE}/references/{{property}}"
_TENANTS = f"{_C}/tenants"


def _graphql(path: str, inspected: BodyParser) -> ProtocolRoute:
    mixed = ProtocolRoute(
        "POST",
        path,
        _RETRIEVE,
        WeaviateSources.of_queries,
        parse_body=inspected,
        plan_forward=Weaviate.printed,
    )
    sharp = replace(mixed, plan_forward=Weaviate.narrowed, filters_documents=True)

    def refined(weaviate: Weaviate, asked: RoutedRequest) -> ProtocolRoute:
        return sharp if weaviate.narrows(asked.body) else mixed

    return replace(sharp, refine=refined)


def _tool(class_: RouteClass) -> ProtocolRoute:
    return ProtocolRoute(
        "POST", f"{_V1}/mcp", class_, WeaviateSources.of_tool, parse_body=json_object
    )


_MCP = {
    mcp.READ: _tool(_RETRIEVE),
    mcp.METADATA: _tool(_METADATA),
    mcp.WRITE: _tool(_WRITE),
    mcp.OPEN: ProtocolRoute("POST", f"{_V1}/mcp", _OPEN, parse_body=json_object),
}


def _write(
    methods: str, path: str, places: Any = _path, inspected: BodyParser | None = None
) -> ProtocolRoute:
    return ProtocolRoute(methods, path, _WRITE, places, _hint, parse_body=inspected)


def _renames(
    methods: str, path: str, places: Any = _path, inspected: BodyParser | None = None
) -> ProtocolRoute:
    row = _write(methods, path, places, inspected)
    return replace(row, before_forward=_change, after_forward=_change)


# INVARIANT: a literal segment stands above a `{parameter}` in its place, as in Weaviate's router.
# What is not here is denied as `unclassified_route`: a newer Weaviate opens nothing by itself.
ROUTES = (
    _graphql(f"{_V1}/graphql", _one_query),
    _graphql(f"{_V1}/graphql/batch", _queries),
    ProtocolRoute(
        "POST",
        f"{_V1}/search/{{class}}/{{how}}",
        _RETRIEVE,
        WeaviateSources.of_search,
        parse_body=json_object,
    ),
    ProtocolRoute(
        "GET",
        _O,
        _RETRIEVE,
        WeaviateSources.of_listing,
        plan_forward=Weaviate.objects_seen,
        filters_documents=True,
    ),
    ProtocolRoute(
        "POST", f"{_O}/validate", _METADATA, WeaviateSources.of_object, parse_body=json_object
    ),
    ProtocolRoute("GET HEAD", f"{_O}/{{id}}", _RETRIEVE, WeaviateSources.of_id),
    # A hidden object would have to look like one that is not there, which has a status of its own.
    ProtocolRoute("GET HEAD", _ONE, _RETRIEVE, _path),
    ProtocolRoute("POST", f"{_V1}/mcp", _RETRIEVE, parse_body=json_object, refine=Weaviate.called),
    ProtocolRoute("GET", _S, _METADATA, plan_forward=Weaviate.classes_listed),
    ProtocolRoute("GET", _C, _METADATA, _path),
    # A tenant's shard has the tenant's name.
    ProtocolRoute("GET", f"{_C}/shards", _METADATA, _path, plan_forward=Weaviate.tenants_listed),
    ProtocolRoute("GET", _TENANTS, _METADATA, _path, plan_forward=Weaviate.tenants_listed),
    ProtocolRoute("GET HEAD", f"{_TENANTS}/{{tenant}}", _METADATA, _tenant),
    ProtocolRoute("POST", f"{_C}/properties/{{property}}/tokenize", _METADATA, _path),
    ProtocolRoute("GET", f"{_V1}/aliases", _METADATA, plan_forward=Weaviate.aliases_listed),
    # As the client for JavaScript spells it; Weaviate takes both for one.
    ProtocolRoute("GET", f"{_V1}/aliases/", _METADATA, plan_forward=Weaviate.aliases_listed),
    ProtocolRoute("GET", f"{_V1}/aliases/{{alias}}", _METADATA, WeaviateSources.of_alias),
    ProtocolRoute("GET", f"{_V1}/nodes", _METADATA, plan_forward=Weaviate.nodes_listed),
    ProtocolRoute(
        "GET", f"{_V1}/nodes/{{class}}", _METADATA, _path, plan_forward=Weaviate.nodes_listed
    ),
    _write("POST", _O, WeaviateSources.of_object, json_object),
    _write("PUT PATCH DELETE", f"{_O}/{{id}}", WeaviateSources.of_id),
    _write("PUT PATCH", _ONE, WeaviateSources.of_object, json_object),
    _write("DELETE", _ONE),
    _write("POST PUT DELETE", _REFERENCES),
    _write("POST", f"{_V1}/batch/objects", WeaviateSources.of_objects, json_object),
    _write("DELETE", f"{_V1}/batch/objects", WeaviateSources.of_matches, json_object),
    _write("POST", f"{_V1}/batch/references", WeaviateSources.of_references, json_array),
    _renames("POST", _S, WeaviateSources.of_object, json_object),
    _renames("PUT DELETE", _C),
    _write("POST", f"{_C}/properties"),
    _write("PUT", f"{_C}/shards/{{shard}}"),
    _write("POST PUT DELETE", _TENANTS),
    # Points a name to another collection.
    ProtocolRoute("POST", f"{_V1}/aliases", _ADMIN),
    ProtocolRoute("PUT DELETE", f"{_V1}/aliases/{{alias}}", _ADMIN),
    # It reads and writes across collections.
    ProtocolRoute("POST", f"{_V1}/classifications", _ADMIN),
    ProtocolRoute("GET", f"{_V1}/classifications/{{id}}", _ADMIN),
    ProtocolRoute("GET", f"{_V1}/cluster/statistics", _ADMIN),
    ProtocolRoute("POST", f"{_V1}/replication/replicate", _ADMIN),
    ProtocolRoute("GET POST", f"{_V1}/authz/roles", _ADMIN),
    ProtocolRoute("GET", f"{_V1}/users/db", _ADMIN),
    ProtocolRoute("GET POST", f"{_V1}/backups/{{backend}}", _BULK),
    ProtocolRoute("GET DELETE", f"{_V1}/backups/{{backend}}/{{id}}", _BULK),
    ProtocolRoute("GET POST DELETE", f"{_V1}/backups/{{backend}}/{{id}}/restore", _BULK),
    ProtocolRoute("POST", f"{_V1}/export/{{backend}}", _BULK),
    ProtocolRoute("GET DELETE", f"{_V1}/export/{{backend}}/{{id}}", _BULK),
    ProtocolRoute("GET", _V1, _OPEN),
    ProtocolRoute("GET", f"{_V1}/meta", _OPEN),
    ProtocolRoute("POST", f"{_V1}/tokenize", _OPEN),
    *(
        ProtocolRoute("GET", f"{_V1}/.well-known/{what}", _OPEN)
        for what in ("live", "ready", "openid-configuration")
    ),
)

_TABLE = RouteTable(ROUTES)
