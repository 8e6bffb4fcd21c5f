"""Amazon Bedrock's knowledge bases, agents and flows as they are asked (data-sources.md 5.7; the
operations of botocore's model of `bedrock-agent-runtime`).

A knowledge base is `bedrock://<alias>/<id>`, wherever a request names it. An agent or a flow reads
what its owner gave it: that is a source of its own, `bedrock://<alias>/agent/<id>/<alias>`. The
request is signed anew with the sidecar's own credentials (R9).

The table at the end holds every operation. Knows Bedrock's routes; judges nothing.
"""

from collections.abc import Callable
from typing import Any

import orjson

from sidecar.http.request_target import Target
from sidecar.protocols.bedrock import filter as documents
from sidecar.protocols.bedrock import references as refer
from sidecar.protocols.bedrock.references import ReferenceNames
from sidecar.protocols.bedrock.sources import BedrockSources, Places
from sidecar.protocols.messages import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    Fields,
    ForwardedPart,
    ForwardPlan,
    OutgoingRequest,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.protocol import SourceProtocol
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch, RouteTable
from sidecar.protocols.shared.aws_signing import AwsSigner
from sidecar.protocols.strict_body import optional_json_object
from sidecar.settings.model import Source

Preparing = Callable[["Bedrock", RoutedRequest, Places, Visibility], ForwardPlan]

_SESSION = b"x-amzn-bedrock-knowledge-base-session-id"
_EXECUTION = b"x-amz-bedrock-flow-execution-id"


class Bedrock(SourceProtocol):
    """One region's runtime of one account."""

    signs_requests = True

    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        self._signer = AwsSigner(source.aws, "bedrock", monotonic)
        self.sources = BedrockSources(source, monotonic)

    def match(self, method: str, target: Target) -> RouteMatch | None:
        return _TABLE.match(method, target)

    async def sign(self, outgoing: OutgoingRequest) -> Fields:
        # `x-amz-source-arn` and its like speak for somebody. A digest is of the body that came.
        fields = [each for each in outgoing.fields if each[0].lower() != b"content-md5"]
        passes = (b"x-amzn-trace-id",).__contains__
        return await self._signer.sign(outgoing._replace(fields=fields), passes)

    def retrieved(self, asked: RoutedRequest, places: Places, sight: Visibility) -> ForwardPlan:
        """Documents of the levels that may be seen, for this user; the next page is remembered."""
        marks = documents.levels_of(sight)
        body = documents.for_user(asked.body, asked.attribution.user)
        if marks is not None:
            body = documents.narrowed(body, marks, sight.field)

        def read(answer: FetchedResponse) -> ForwardedPart:
            self.sources.issue("page", documents.stated(answer, "nextToken"), asked, places)
            whole = ForwardedPart(answer.body)
            return whole if marks is None else documents.checked(answer.body, marks)

        return ForwardPlan(orjson.dumps(body), read)

    def for_user(self, asked: RoutedRequest, _places: Places, _sight: Visibility) -> ForwardPlan:
        return ForwardPlan(orjson.dumps(documents.for_user(asked.body, asked.attribution.user)))


def _told(kind: str, member: str) -> Preparing:
    """For an answer that holds a token in its body."""

    def prepared(
        bedrock: Bedrock, asked: RoutedRequest, places: Places, _sight: Visibility
    ) -> ForwardPlan:
        def read(answer: FetchedResponse) -> ForwardedPart:
            # The name of an execution ends with its identifier.
            token = documents.stated(answer, member)
            last = token and token.rpartition("/execution/")[2]
            bedrock.sources.issue(kind, last, asked, places)
            return ForwardedPart(answer.body)

        return ForwardPlan(filter_response=read)

    return prepared


def _headed(kind: str, name: bytes) -> Preparing:
    """For an answer that holds a token in its head, and goes on as it comes."""

    def prepared(
        bedrock: Bedrock, asked: RoutedRequest, places: Places, _sight: Visibility
    ) -> ForwardPlan:
        def head(_status: int, fields: Fields) -> None:
            bedrock.sources.issue(kind, documents.of_head(fields, name), asked, places)

        return ForwardPlan(on_head=head)

    return prepared


def _as_it_is(
    _bedrock: Bedrock, _asked: RoutedRequest, _places: Places, _sight: Visibility
) -> ForwardPlan:
    return FORWARD_UNCHANGED


def _row(
    methods: str,
    path: str,
    class_: RouteClass,
    names: ReferenceNames,
    preparing: Preparing,
    **more: Any,
) -> ProtocolRoute:
    async def places(bedrock: Bedrock, asked: RoutedRequest) -> Places:
        return bedrock.sources.named(asked, names)

    def prepared(
        bedrock: Bedrock, asked: RoutedRequest, places: Places, sight: Visibility
    ) -> ForwardPlan:
        bedrock.sources.claim(asked, names, places)
        return preparing(bedrock, asked, places, sight)

    inspected = optional_json_object if methods == "POST" else None
    return ProtocolRoute(
        methods, path, class_, places, plan_forward=prepared, parse_body=inspected, **more
    )


def _of(
    own: Any = refer.nothing, members: str = "", query: str = "", **more: Any
) -> ReferenceNames:
    return ReferenceNames(own, frozenset(members.split()), frozenset(query.split()), **more)


_RETRIEVE, _METADATA, _WRITE, _ADMIN = (
    RouteClass.RETRIEVE,
    RouteClass.METADATA,
    RouteClass.WRITE,
    RouteClass.ADMIN,
)
_BASE = "/knowledgebases/{knowledgeBase}"
_DOCUMENTS = f"{_BASE}/datasources/{{dataSource}}"
_AGENT = "/agents/{agent}/agentAliases/{alias}"
_FLOW = "/flows/{flow}/aliases/{alias}"
_EXECUTIONS = f"{_FLOW}/executions"
_ONE = f"{_EXECUTIONS}/{{execution}}"

_GENERATE = _of(
    members="input retrieveAndGenerateConfiguration sessionConfiguration sessionId", some=True
)
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
_FLOW_INPUT = "enableTrace executionId flowExecutionName inputs modelPerformanceConfiguration"
_AGENTIC = (
    "agenticRetrieveConfiguration generateResponse memoryConfiguration messages nextToken "
    "policyConfiguration retrievalInstructionConfiguration retrievers userContext"
)
_RETRIEVAL = "guardrailConfiguration nextToken retrievalConfiguration retrievalQuery userContext"

ROUTES = (
    _row(
        "POST", f"{_BASE}/retrieve", _RETRIEVE, _of(refer.knowledge_base, _RETRIEVAL),
        Bedrock.retrieved, filters_documents=True,
    ),
    # A generated text can't be proven to hold only what may be seen: not sieved.
    _row("POST", "/retrieveAndGenerate", _RETRIEVE, _GENERATE, _told("session", "sessionId")),
    _row("POST", "/retrieveAndGenerateStream", _RETRIEVE, _GENERATE, _headed("session", _SESSION)),
    _row(
        "POST", "/agenticRetrieveStream", _RETRIEVE, _of(members=_AGENTIC, some=True),
        Bedrock.for_user,
    ),
    _row(
        "POST", f"{_DOCUMENTS}/documents/{{document}}/content", _RETRIEVE,
        _of(refer.document, "mediaId outputFormat userContext"), Bedrock.for_user,
    ),
    # They tell an agent who else may read what.
    ProtocolRoute("POST", f"{_DOCUMENTS}/check-ingested-document-acl", _ADMIN),
    ProtocolRoute("POST", f"{_DOCUMENTS}/get-ingested-document-acl", _ADMIN),
    _row(
        "POST", "/generateQuery", _RETRIEVE,
        _of(members="queryGenerationInput transformationConfiguration", some=True), _as_it_is,
    ),
    # They read what the request brings along, and nothing else.
    _row(
        "POST", "/rerank", _METADATA,
        _of(lambda _: ("rerank",), "nextToken queries rerankingConfiguration sources"),
        _told("page", "nextToken"),
    ),
    _row(
        "POST", "/optimize-prompt", _METADATA,
        _of(lambda _: ("optimize-prompt",), "input targetModelId"), _as_it_is,
    ),
    _row(
        "POST", f"{_AGENT}/sessions/{{session}}/text", _RETRIEVE,
        _of(refer.agent, _INVOKE, claimed=refer.conversation), _as_it_is,
    ),
    _row(
        "POST", "/agents/{session}", _RETRIEVE,
        _of(lambda _: ("inline-agent",), _INLINE, claimed=refer.conversation), _as_it_is,
    ),
    _row(
        "GET", f"{_AGENT}/memories", _RETRIEVE,
        _of(refer.agent, "", "maxItems memoryId memoryType nextToken", claimed=refer.conversation),
        _told("page", "nextToken"),
    ),
    _row(
        "DELETE", f"{_AGENT}/memories", _WRITE,
        _of(refer.agent, "", "memoryId", claimed=refer.conversation), _as_it_is,
    ),
    _row("POST", _FLOW, _RETRIEVE, _of(refer.flow, _FLOW_INPUT), _headed("execution", _EXECUTION)),
    _row(
        "POST", _EXECUTIONS, _RETRIEVE, _of(refer.flow, _FLOW_INPUT),
        _told("execution", "executionArn"),
    ),
    _row("GET", _ONE, _METADATA, _of(refer.flow, issued=refer.execution), _as_it_is),
    _row(
        "GET", f"{_ONE}/events", _RETRIEVE,
        _of(refer.flow, "", "eventType maxResults nextToken", issued=refer.execution),
        _told("page", "nextToken"),
    ),
    _row(
        "GET", f"{_ONE}/flowsnapshot", _METADATA, _of(refer.flow, issued=refer.execution),
        _as_it_is,
    ),
    _row("POST", f"{_ONE}/stop", _WRITE, _of(refer.flow, issued=refer.execution), _as_it_is),
    _row(
        "GET", "/flows/{flow}/executions", _METADATA,
        _of(lambda values: ("flow", refer.identifier(values[0])), "",
            "flowAliasIdentifier maxResults nextToken"),
        _told("page", "nextToken"),
    ),
    # What agents keep for themselves, of all users, and nothing tells whose it is.
    ProtocolRoute("PUT POST", "/sessions/", _ADMIN),
    ProtocolRoute("GET PUT DELETE", "/sessions/{session}/", _ADMIN),
    ProtocolRoute("PATCH", "/sessions/{session}", _ADMIN),
    ProtocolRoute("PUT POST", "/sessions/{session}/invocations/", _ADMIN),
    ProtocolRoute("PUT POST", "/sessions/{session}/invocationSteps/", _ADMIN),
    ProtocolRoute("POST", "/sessions/{session}/invocationSteps/{step}", _ADMIN),
    ProtocolRoute("GET POST DELETE", "/tags/{resource}", _ADMIN),
)  # fmt: skip
"""Every operation of the model. What is not here is denied as `unclassified_route`."""

_TABLE = RouteTable(ROUTES)
