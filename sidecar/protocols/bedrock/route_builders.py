"""Builds the rows of Bedrock's table: what an operation names, and which token its response holds.
Knows no particular operation.
"""

from collections.abc import Callable
from typing import Any

from sidecar.protocols.bedrock.filter import single_field, text_member
from sidecar.protocols.bedrock.references import OperationNames, no_source
from sidecar.protocols.bedrock.sources import BedrockSources
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    Fields,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, Sources
from sidecar.protocols.strict_body import optional_json_object

MakePlan = Callable[[Any, RoutedRequest, Sources, Visibility], ForwardPlan]


def body_token(kind: str, member: str) -> MakePlan:
    """Remembers a token from a member of the response's body."""

    def plan(
        bedrock: BedrockSources, request: RoutedRequest, sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        def filter_response(response: FetchedResponse) -> ForwardedPart:
            # An execution's ARN ends with its identifier.
            token = text_member(response, member)
            last = token and token.rpartition("/execution/")[2]
            bedrock.issue(kind, last, request, sources)
            return ForwardedPart(response.body)

        return ForwardPlan(filter_response=filter_response)

    return plan


def header_token(kind: str, name: bytes) -> MakePlan:
    """Remembers a token from a header field of a response that is streamed."""

    def plan(
        bedrock: BedrockSources, request: RoutedRequest, sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        def on_head(_status: int, fields: Fields) -> None:
            bedrock.issue(kind, single_field(fields, name), request, sources)

        return ForwardPlan(on_head=on_head)

    return plan


def unchanged(
    _bedrock: BedrockSources, _request: RoutedRequest, _sources: Sources, _visibility: Visibility
) -> ForwardPlan:
    return FORWARD_UNCHANGED


def route(
    methods: str,
    path: str,
    route_class: RouteClass,
    names: OperationNames,
    make_plan: MakePlan,
    **more: Any,
) -> ProtocolRoute:
    """A row for an operation that names its sources in the way of `names`."""

    async def find_sources(bedrock: BedrockSources, request: RoutedRequest) -> Sources:
        return bedrock.find(request, names)

    def plan(
        bedrock: BedrockSources, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        bedrock.claim(request, names, sources)
        return make_plan(bedrock, request, sources, visibility)

    parse_body = optional_json_object if methods == "POST" else None
    return ProtocolRoute(
        methods, path, route_class, find_sources, plan_forward=plan, parse_body=parse_body, **more
    )


def names(
    path_source: Any = no_source, members: str = "", parameters: str = "", **more: Any
) -> OperationNames:
    """`members` and `parameters` are names separated by spaces."""
    return OperationNames(
        path_source, frozenset(members.split()), frozenset(parameters.split()), **more
    )
