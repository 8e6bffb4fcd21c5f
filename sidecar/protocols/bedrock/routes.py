"""Routes and error responses for Amazon Bedrock's knowledge bases, agents and flows
(`protocols/RULES.md`, Bedrock; botocore's model of `bedrock-agent-runtime`).

An agent or a flow reads what its owner configured, unseen by the sidecar, so it is a source of its
own. Requests are signed with the sidecar's own credentials (R9).
"""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import orjson

from sidecar.protocols.bedrock import sources as refs
from sidecar.protocols.bedrock.sources import (
    BedrockSources,
    OperationNames,
    TokenKind,
    filter_results,
    narrow,
    no_source,
    single_field,
    text_member,
    with_user,
)
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    Fields,
    ForwardedPart,
    ForwardPlan,
    OutgoingRequest,
    PlanForward,
    ProtocolRoute,
    RefusalResponse,
    RouteClass,
    RoutedRequest,
    RouteTable,
    SourceProtocol,
    Sources,
    Visibility,
    without_waiting,
)
from sidecar.protocols.shared.aws_signing import AwsSigner
from sidecar.protocols.shared.responses import error_response, levels_of
from sidecar.protocols.strict_body import optional_json_object
from sidecar.settings.model import Source

_TYPES = {
    400: "ValidationException", 403: "AccessDeniedException", 502: "BadGatewayException",
    503: "ServiceUnavailableException",
}  # fmt: skip
_SESSION = b"x-amzn-bedrock-knowledge-base-session-id"
_EXECUTION = b"x-amz-bedrock-flow-execution-id"


def body_token(kind: TokenKind, member: str) -> PlanForward:
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

    parse_body = optional_json_object if methods == "POST" else None
    row = ProtocolRoute(methods, path, route_class, without_waiting(find), **more)
    return replace(row, parse_body=parse_body, plan_forward=plan)


def names(
    path_source: Any = no_source, members: str = "", parameters: str = "", **more: Any
) -> OperationNames:
    """Return the `OperationNames` of an operation. `members` and `parameters` are names separated
    by spaces; `more` are its other fields."""
    allowed = frozenset(members.split()), frozenset(parameters.split())
    return OperationNames(path_source, *allowed, **more)


class Bedrock(BedrockSources, SourceProtocol):
    signs_requests = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._signer = AwsSigner(source.aws, "bedrock", monotonic)

    def render_refusal(
        self, _request: RoutedRequest | None, refusal: RefusalResponse
    ) -> FetchedResponse:
        kind = _TYPES.get(refusal.status, "InternalServerException")
        own = {"error": HTTPStatus(refusal.status).phrase, "__type": kind}
        return error_response(refusal, own, (b"X-Amzn-ErrorType", kind.encode()))

    async def sign(self, outgoing: OutgoingRequest) -> Fields:
        # The agent's digest may no longer match the body. Of its `x-amz` fields, only the trace id
        # passes: others, like `x-amz-source-arn`, claim to act for someone.
        fields = [each for each in outgoing.fields if each[0].lower() != b"content-md5"]
        passes = (b"x-amzn-trace-id",).__contains__
        return await self._signer.sign(outgoing._replace(fields=fields), passes)

    def plan_retrieve(
        self, request: RoutedRequest, sources: Sources, visibility: Visibility
    ) -> ForwardPlan:
        # Bedrock's metadata are one flat map: a dot is part of a name.
        levels = levels_of(visibility, flat=True)
        body = with_user(request.body, request.attribution.user)
        if levels is not None:
            body = narrow(body, levels)

        def filter_response(response: FetchedResponse) -> ForwardedPart:
            # Remembered before the agent gets the response, since it may use the token at once.
            self.issue("page", text_member(response, "nextToken"), request, sources)
            if levels is None:
                return ForwardedPart(response.body)
            return filter_results(response, levels)

        return ForwardPlan(orjson.dumps(body), filter_response)

    def plan_with_user(
        self, request: RoutedRequest, _sources: Sources, _visibility: Visibility
    ) -> ForwardPlan:
        return ForwardPlan(orjson.dumps(with_user(request.body, request.attribution.user)))


_RETRIEVE, _METADATA = RouteClass.RETRIEVE, RouteClass.METADATA
_WRITE, _ADMIN = RouteClass.WRITE, RouteClass.ADMIN
_BASE = "/knowledgebases/{knowledgeBase}"
_DOCUMENTS = f"{_BASE}/datasources/{{dataSource}}"
_AGENT = "/agents/{agent}/agentAliases/{alias}"
_FLOW = "/flows/{flow}/aliases/{alias}"
_EXECUTIONS = f"{_FLOW}/executions"
_ONE = f"{_EXECUTIONS}/{{execution}}"

_GENERATED = "input retrieveAndGenerateConfiguration sessionConfiguration sessionId"
_GENERATE = names(members=_GENERATED, source_required=True)
_INLINE = (
    "actionGroups agentCollaboration agentName bedrockModelConfigurations collaborators "
    "collaboratorConfigurations customOrchestration customerEncryptionKeyArn enableTrace "
    "endSession foundationModel guardrailConfiguration idleSessionTTLInSeconds inlineSessionState "
    "inputText instruction knowledgeBases orchestrationType promptCreationConfigurations "
    "promptOverrideConfiguration streamingConfigurations"
)
_INVOKE = (
    "bedrockModelConfigurations enableTrace endSession inputText memoryId "
    "promptCreationConfigurations sessionState streamingConfigurations"
)
_RUN = "enableTrace executionId flowExecutionName inputs modelPerformanceConfiguration"
_FLOW_INPUT = names(refs.flow, _RUN)
_AGENTIC = (
    "agenticRetrieveConfiguration generateResponse memoryConfiguration messages nextToken "
    "policyConfiguration retrievalInstructionConfiguration retrievers userContext"
)
_RETRIEVAL = "guardrailConfiguration nextToken retrievalConfiguration retrievalQuery userContext"

ROUTES = (
    route(
        "POST", f"{_BASE}/retrieve", _RETRIEVE, names(refs.knowledge_base, _RETRIEVAL),
        Bedrock.plan_retrieve, filters_documents=True,
    ),
    # Not filtered: no check can prove which documents a generated text was made from.
    route("POST", "/retrieveAndGenerate", _RETRIEVE, _GENERATE, body_token("session", "sessionId")),
    route(
        "POST", "/retrieveAndGenerateStream", _RETRIEVE, _GENERATE,
        header_token("session", _SESSION),
    ),
    # The token of the next page is inside the stream, which the sidecar doesn't read. So the next
    # page is denied.
    route(
        "POST", "/agenticRetrieveStream", _RETRIEVE, names(members=_AGENTIC, source_required=True),
        Bedrock.plan_with_user,
    ),
    # The response is an S3 address that works without credentials for a while.
    route(
        "POST", f"{_DOCUMENTS}/documents/{{document}}/content", _RETRIEVE,
        names(refs.document, "mediaId outputFormat userContext"), Bedrock.plan_with_user,
    ),
    # These reveal who else may read what.
    ProtocolRoute("POST", f"{_DOCUMENTS}/check-ingested-document-acl", _ADMIN),
    ProtocolRoute("POST", f"{_DOCUMENTS}/get-ingested-document-acl", _ADMIN),
    route(
        "POST", "/generateQuery", _RETRIEVE,
        names(members="queryGenerationInput transformationConfiguration", source_required=True),
    ),
    # These read only what the request itself carries.
    route(
        "POST", "/rerank", _METADATA,
        names(lambda _: ("rerank",), "nextToken queries rerankingConfiguration sources"),
        body_token("page", "nextToken"),
    ),
    route(
        "POST", "/optimize-prompt", _METADATA,
        names(lambda _: ("optimize-prompt",), "input targetModelId"),
    ),
    # An agent or a flow reads inside Bedrock, unseen by the sidecar, so its id is judged as a
    # source.
    route(
        "POST", f"{_AGENT}/sessions/{{session}}/text", _RETRIEVE,
        names(refs.agent, _INVOKE, claims=refs.conversation),
    ),
    route(
        "POST", "/agents/{session}", _RETRIEVE,
        names(lambda _: ("inline-agent",), _INLINE, claims=refs.conversation),
    ),
    route(
        "GET", f"{_AGENT}/memories", _RETRIEVE,
        names(refs.agent, "", "maxItems memoryId memoryType nextToken", claims=refs.conversation),
        body_token("page", "nextToken"),
    ),
    route(
        "DELETE", f"{_AGENT}/memories", _WRITE,
        names(refs.agent, "", "memoryId", claims=refs.conversation),
    ),
    route("POST", _FLOW, _RETRIEVE, _FLOW_INPUT, header_token("execution", _EXECUTION)),
    route("POST", _EXECUTIONS, _RETRIEVE, _FLOW_INPUT, body_token("execution", "executionArn")),
    route("GET", _ONE, _METADATA, names(refs.flow, tokens=refs.execution)),
    route(
        "GET", f"{_ONE}/events", _RETRIEVE,
        names(refs.flow, "", "eventType maxResults nextToken", tokens=refs.execution),
        body_token("page", "nextToken"),
    ),
    route("GET", f"{_ONE}/flowsnapshot", _METADATA, names(refs.flow, tokens=refs.execution)),
    route("POST", f"{_ONE}/stop", _WRITE, names(refs.flow, tokens=refs.execution)),
    route(
        "GET", "/flows/{flow}/executions", _METADATA,
        names(refs.flow, "", "flowAliasIdentifier maxResults nextToken"),
        body_token("page", "nextToken"),
    ),
    # Agents store sessions for all users, and nothing in a request shows whose session it is.
    ProtocolRoute("PUT POST", "/sessions/", _ADMIN),
    ProtocolRoute("GET PUT DELETE", "/sessions/{session}/", _ADMIN),
    ProtocolRoute("PATCH", "/sessions/{session}", _ADMIN),
    ProtocolRoute("PUT POST", "/sessions/{session}/invocations/", _ADMIN),
    ProtocolRoute("PUT POST", "/sessions/{session}/invocationSteps/", _ADMIN),
    ProtocolRoute("POST", "/sessions/{session}/invocationSteps/{step}", _ADMIN),
    ProtocolRoute("GET POST DELETE", "/tags/{resource}", _ADMIN),
)  # fmt: skip
"""Every operation of the model has a route here. Any other request is denied as
`unclassified_route`."""

Bedrock.table = RouteTable(ROUTES)
