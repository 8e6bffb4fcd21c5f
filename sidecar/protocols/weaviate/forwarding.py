"""Plans how requests are forwarded to Weaviate and their responses filtered. Knows no routes."""

from collections.abc import Callable
from typing import Any

import orjson

from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import FORWARD_UNCHANGED, ForwardPlan, RoutedRequest, Visibility
from sidecar.protocols.shared.document_levels import levels_of
from sidecar.protocols.strict_body import json_object
from sidecar.protocols.weaviate.filter import add_filter, can_filter, graphql_filter
from sidecar.protocols.weaviate.graphql import GraphqlQuery, parse_query
from sidecar.protocols.weaviate.lists import node_filter, object_filter, tenant_filter
from sidecar.protocols.weaviate.names import json_array, parse_collection
from sidecar.protocols.weaviate.sources import WeaviateSources
from sidecar.settings.model import Source


class WeaviateForwarding(WeaviateSources):
    """One Weaviate server, and the plans for forwarding requests to it."""

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._level_field = source.sensitivity_field

    def can_filter(self, queries: list[GraphqlQuery]) -> bool:
        """Whether objects can be withheld from all these queries. If not, the queries are judged at
        `critical`, as if they returned everything."""
        field = self._level_field
        return field is not None and all(can_filter(each, field) for each in queries)

    def forward_queries(
        self, request: RoutedRequest, _sources: object, _visibility: Visibility
    ) -> ForwardPlan:
        """Forwards the queries in the form in which they were judged."""
        return ForwardPlan(_to_bytes(request, [each.to_body() for each in request.body]))

    def filter_queries(
        self, request: RoutedRequest, sources: object, visibility: Visibility
    ) -> ForwardPlan:
        """Forwards the queries with a condition, so that only visible objects come back."""
        levels = levels_of(visibility)
        if levels is None:
            return self.forward_queries(request, sources, visibility)
        filtered = [add_filter(each, levels) for each in request.body]
        body = _to_bytes(request, [each.body for each in filtered])
        return ForwardPlan(body, graphql_filter(levels, filtered, batch=_is_batch(request)))

    def filter_objects(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        # A REST list takes no condition, so its objects are only checked, and a page may be shorter
        # than the agent asked for.
        return ForwardPlan(filter_response=object_filter(levels))

    def filter_tenants(
        self, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        # `of_path` has just fetched the aliases, so they are cached.
        name = self._cached_target(parse_collection(request.path_params[0]), request)
        return ForwardPlan(filter_response=tenant_filter(name, self.source_names, visibility))

    def filter_nodes(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        return ForwardPlan(filter_response=node_filter(self.source_names, visibility))


def parse_graphql(raw: bytes, media_type: str | None, budget: Budget) -> list[GraphqlQuery]:
    """A body that is one GraphQL request."""
    return [parse_query(json_object(raw, media_type), budget)]


def parse_graphql_batch(raw: bytes, media_type: str | None, budget: Budget) -> list[GraphqlQuery]:
    """A body that is an array of GraphQL requests."""
    return [parse_query(each, budget) for each in json_array(raw, media_type, budget)]


def _is_batch(request: RoutedRequest) -> bool:
    # A batch of one is answered with a list of one, so only the path tells it from a single query.
    return request.target.segments[-1] == "batch"


def _to_bytes(request: RoutedRequest, bodies: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(bodies if _is_batch(request) else bodies[0])
