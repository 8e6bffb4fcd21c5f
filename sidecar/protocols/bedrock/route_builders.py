"""Builds the rows of Bedrock's table: the sources that an operation names, and the token that its
response holds. Knows no particular operation.
"""

from typing import Any

from sidecar.protocols.bedrock.filter import single_field, text_member
from sidecar.protocols.bedrock.sources import BedrockSources, OperationNames, TokenKind, no_source
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    Fields,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.protocol import (
    PlanForward,
    ProtocolRoute,
    RouteClass,
    Sources,
    without_waiting,
)
from sidecar.protocols.strict_body import optional_json_object


def body_token(kind: TokenKind, member: str) -> PlanForward:
    """Remembers a token from a member of the response's body."""

    def plan(
        bedrock: BedrockSources, request: RoutedRequest, sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        def filter_response(response: FetchedResponse) -> ForwardedPart:
            # An execution's ARN ends with its identifier, which is what later requests state.
            token = text_member(response, member)
            last = token and token.rpartition("/execution/")[2]
            bedrock.issue(kind, last, request, sources)
            return ForwardedPart(response.body)

        return ForwardPlan(filter_response=filter_response)

    return plan


def header_token(kind: TokenKind, name: bytes) -> PlanForward:
    """Remembers a token from a header field of a response that is streamed."""

    def plan(
        bedrock: BedrockSources, request: RoutedRequest, sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        # Called before any of the stream is passed on, so that the agent can't use the token before
        # it is remembered.
        def on_head(_status: int, fields: Fields) -> None:
            bedrock.issue(kind, single_field(fields, name), request, sources)

        return ForwardPlan(on_head=on_head)

    return plan


def route(
    methods: str,
    path: str,
    route_class: RouteClass,
    names: OperationNames,
    make_plan: PlanForward | None = None,
    **more: Any,
) -> ProtocolRoute:
    """Return a row for an operation that names its sources as `names` describes."""

    def find(bedrock: BedrockSources, request: RoutedRequest) -> Sources:
        return bedrock.find(request, names)

    def plan(
        bedrock: BedrockSources, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        # Claim only now: a denied request must not make its caller the owner of a name.
        bedrock.claim(request, names, sources)
        if make_plan is None:
            return FORWARD_UNCHANGED
        return make_plan(bedrock, request, sources, visibility)

    return ProtocolRoute(
        methods,
        path,
        route_class,
        without_waiting(find),
        parse_body=optional_json_object if methods == "POST" else None,
        plan_forward=plan,
        **more,
    )


def names(
    path_source: Any = no_source, members: str = "", parameters: str = "", **more: Any
) -> OperationNames:
    """Return the names of an operation. `members` and `parameters` are names separated by
    spaces."""
    return OperationNames(
        path_source, frozenset(members.split()), frozenset(parameters.split()), **more
    )
