"""Bedrock, with boto3 and a minimal server that verifies signatures: what may be read comes back
unchanged, requests are signed by the sidecar and made for the right user, and nothing else can be
read. Every row of data-sources.md 5.7 for Bedrock is a test here."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from policies.definitions.model import Policy
from sidecar.http.request_target import canonical
from sidecar.protocols.bedrock.routes import ROUTES, Bedrock
from sidecar.protocols.route_table import ALWAYS_DENIED, RouteClass
from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import REGION, credentials_file
from tests.sidecar.protocols.bedrock.server import LEVELS, OPEN, SHUT
from tests.sidecar.protocols.bedrock.server import Bedrock as Server
from tests.sidecar.proxy.proxy_setup import CLOCK, Sidecar, listening, policy, sidecar, source
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.sidecar.proxy.scripted_source import DataSource, answer, data_source

ALLOWED = (
    f"bedrock://kb/{OPEN}",
    "bedrock://kb/agent/AGENT00001/*",
    "bedrock://kb/flow/FLOW000001*",
    "bedrock://kb/inline-agent",
    "bedrock://kb/external-sources",
    "bedrock://kb/s3/open/*",
    "bedrock://kb/memory/*",
    "bedrock://kb/rerank",
    f"bedrock://kb/{OPEN}/SOURCE0001/*",
)


@dataclass
class Front:
    """A listener in front of Bedrock."""

    port: int
    upstream: DataSource
    script: Server
    sidecar: Sidecar

    async def through(self, call: Callable[[Any], Any], user: str = "ada", **headers: str) -> Any:
        """The result of `call`, on behalf of `user`, with a client whose credentials are
        unknown."""
        client = boto3.client(
            "bedrock-agent-runtime",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="AKIAAGENT",
            aws_secret_access_key="none",
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}),
        )
        stated = {"X-Sluice-User": user, **headers}

        def state(request: Any, **_: Any) -> None:
            for name, value in stated.items():
                request.headers[name] = value

        client.meta.events.register("before-send", state)
        return await asyncio.to_thread(call, client)

    async def post(self, target: str, body: object, *fields: str) -> Answered:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [
            f"POST {target} HTTP/1.1", "Host: kb", "Connection: close",
            "Content-Type: application/json", f"Content-Length: {len(data)}", *fields,
        ]  # fmt: skip
        return await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def bare(self, method: str, target: str) -> Answered:
        head = f"{method} {target} HTTP/1.1\r\nHost: kb\r\nConnection: close\r\n\r\n"
        return await ask(self.port, head.encode())

    async def places(self) -> list[str]:
        return [each[2] for each in await self.sidecar.decisions()]


@asynccontextmanager
async def fronting(tmp_path: Path, *policies: Policy, **changes: Any) -> AsyncIterator[Front]:
    script = Server()
    aws = Aws(region=REGION, credentials_file=credentials_file(tmp_path))
    async with (
        data_source(script) as upstream,
        sidecar(tmp_path, *(policies or (policy(allowed_sources=ALLOWED),))) as made,
    ):
        configured = replace(source(upstream.port, "bedrock", aws=aws), **changes)
        async with listening(made, configured) as port:
            yield Front(port, upstream, script, made)
            # Everything that the sidecar sent was signed correctly.
            assert script.faults == []


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with fronting(tmp_path) as made:
        made.script.going.set()
        yield made


def denied(answered: Answered, policy_name: str, status: int = 403) -> None:
    assert answered.status == status, answered.raw[:400]
    assert answered.json["decision"]["policy_name"] == policy_name
    assert b"text of" not in answered.raw


QUERY = {"retrievalQuery": {"text": "what"}}


def retrieve(base: str = OPEN, **more: Any) -> Callable[[Any], Any]:
    return lambda client: client.retrieve(knowledgeBaseId=base, **QUERY, **more)


def numbers(answer: Any) -> list[int]:
    return [each["metadata"]["number"] for each in answer["retrievalResults"]]


# retrieval


async def test_boto3_retrieves_through_the_listener(front: Front) -> None:
    answer = await front.through(retrieve())
    assert numbers(answer) == list(range(len(LEVELS)))
    assert await front.sidecar.decisions() == [("ALLOW", "analysts-read", f"bedrock://kb/{OPEN}")]
    [seen] = front.upstream.seen
    assert "AKIAAGENT" not in seen.head.decode()
    assert seen.values("x-sluice-user") == []


async def test_a_denied_knowledge_base_raises_with_the_reason(front: Front) -> None:
    with pytest.raises(ClientError) as raised:
        await front.through(retrieve(SHUT))
    assert SHUT in raised.value.response["Error"]["Message"]
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert front.upstream.seen == []


@pytest.mark.parametrize("said", [None, {"userId": "bob"}, {"userId": "bob", "groups": ["x"]}, 7])
async def test_the_user_is_the_stated_one(front: Front, said: Any) -> None:
    body = {**QUERY} if said is None else {**QUERY, "userContext": said}
    answered = await front.post(f"/knowledgebases/{OPEN}/retrieve", body, "X-Sluice-User: eve")
    assert answered.status == 200
    assert front.script.asked[-1] == {**QUERY, "userContext": {"userId": "eve"}}
    # If no user is stated, it is the source's default.
    await front.post(f"/knowledgebases/{OPEN}/retrieve", body)
    assert front.script.asked[-1]["userContext"] == {"userId": "ada"}


@pytest.mark.parametrize(
    ("target", "status", "name"),
    [
        # Other spellings of an identifier: an ARN, lower case, escapes.
        (f"/knowledgebases/arn:aws:bedrock:x:123456789012:knowledge-base%2F{OPEN}/retrieve", 400,
         "unreadable_request"),
        (f"/knowledgebases/{SHUT.lower()}/retrieve", 403, "unresolved_source"),
        (f"/knowledgebases/%4B{SHUT[1:]}/retrieve", 403, "analysts-read"),
        (f"/knowledgebases/{OPEN}/../{SHUT}/retrieve", 400, "unreadable_request"),
        (f"/knowledgebases/{OPEN}/retrieve?nextToken=x", 400, "unreadable_request"),
        (f"/knowledgebases/{OPEN}/retrieve/", 403, "unclassified_route"),
        (f"/knowledgebases/{OPEN}/search", 403, "unclassified_route"),
    ],
)  # fmt: skip
async def test_no_spelling_reaches_another_knowledge_base(
    front: Front, target: str, status: int, name: str
) -> None:
    denied(await front.post(target, QUERY), name, status)
    assert front.upstream.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"retrievalQuery":{"text":"a"},"retrievalQuery":{"text":"b"}}',
        {**QUERY, "brandNew": {"knowledgeBase": SHUT}},
        {**QUERY, "retrievalConfiguration": []},
        {**QUERY, "retrievalConfiguration": {"vectorSearchConfiguration": "x"}},
        {**QUERY, "retrievalConfiguration": {"kendraSearchConfiguration": {}}},
        {**QUERY, "nextToken": 7},
        b"[]",
    ],
)
async def test_an_unknown_body_is_refused(front: Front, body: Any) -> None:
    denied(await front.post(f"/knowledgebases/{OPEN}/retrieve", body), "unreadable_request", 400)
    assert front.upstream.seen == []


async def test_another_knowledge_base_in_the_body_is_judged_too(front: Front) -> None:
    body = {**QUERY, "retrievalConfiguration": {
        "vectorSearchConfiguration": {"deep": [{"knowledgeBaseId": SHUT}]}
    }}  # fmt: skip
    denied(await front.post(f"/knowledgebases/{OPEN}/retrieve", body), "analysts-read")


# pages and sessions


async def test_a_page_stands_for_what_it_was_issued_for(front: Front) -> None:
    two: Any = {"retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": 3}}}
    first = await front.through(retrieve(**two))
    token = first["nextToken"]
    second = await front.through(retrieve(nextToken=token, **two))
    assert numbers(first) + numbers(second) == list(range(6))
    # For another user, in another session, or never issued.
    for user, headers, told in (
        ("bob", {}, token),
        ("ada", {"X-Sluice-Session": "other"}, token),
        ("ada", {}, "page-5"),
    ):
        with pytest.raises(ClientError, match="continuation"):
            await front.through(retrieve(nextToken=told, **two), user, **headers)
    assert len(front.upstream.seen) == 2


async def test_a_page_of_what_may_no_longer_be_read_is_denied(tmp_path: Path) -> None:
    first = policy(allowed_sources=(f"bedrock://kb/{SHUT}", f"bedrock://kb/{OPEN}"))
    async with fronting(tmp_path, first) as front:
        two: Any = {"retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": 3}}}
        token = (await front.through(retrieve(SHUT, **two)))["nextToken"]
        # One knowledge base's token used with another concerns both.
        await front.through(retrieve(OPEN, nextToken=token, **two))
        assert set((await front.places())[-2:]) == {
            f"bedrock://kb/{OPEN}", f"bedrock://kb/{SHUT}",
        }  # fmt: skip


def generate(base: str | None, session: str | None = None, stream: str = "") -> Any:
    asked: dict[str, Any] = {"input": {"text": "what"}}
    if base is not None:
        asked["retrieveAndGenerateConfiguration"] = {
            "type": "KNOWLEDGE_BASE",
            "knowledgeBaseConfiguration": {"knowledgeBaseId": base, "modelArn": "m"},
        }
    if session is not None:
        asked["sessionId"] = session
    return lambda client: getattr(client, f"retrieve_and_generate{stream}")(**asked)


async def test_generating_reads_its_knowledge_base(front: Front) -> None:
    answer = await front.through(generate(OPEN))
    assert answer["output"]["text"] == "text"
    with pytest.raises(ClientError, match=SHUT):
        await front.through(generate(SHUT))
    with pytest.raises(ClientError, match=SHUT):
        await front.through(generate(SHUT, stream="_stream"))
    with pytest.raises(ClientError, match="does not name a source"):
        await front.through(generate(None))
    assert len(front.upstream.seen) == 1


async def test_a_session_is_its_users(front: Front) -> None:
    session = (await front.through(generate(OPEN)))["sessionId"]
    await front.through(generate(OPEN, session))
    await front.through(generate(None, session))
    for user, told in (("bob", session), ("ada", "session-2")):
        with pytest.raises(ClientError, match="continuation"):
            await front.through(generate(OPEN, told), user)


async def test_a_session_begun_by_a_stream_is_in_its_headers(front: Front) -> None:
    answer = await front.through(generate(OPEN, stream="_stream"))
    assert answer["sessionId"] == "session-1-s"
    await front.through(generate(OPEN, "session-1-s"))
    with pytest.raises(ClientError, match="another user"):
        await front.through(generate(OPEN, "session-1-s", "_stream"), "bob")


SOURCES = [
    ([{"sourceType": "S3", "s3Location": {"uri": "s3://open/a/b.txt"}}], 200),
    ([{"sourceType": "S3", "s3Location": {"uri": "s3://shut/a"}}], 403),
    ([{"sourceType": "S3", "s3Location": {"uri": "s3://open/a"}},
      {"sourceType": "S3", "s3Location": {"uri": "s3://shut/a"}}], 403),
    ([{"sourceType": "S3", "s3Location": {"uri": "https://open/a"}}], 403),
    ([{"sourceType": "S3", "s3Location": ["s3://open/a"]}], 403),
    ([{"sourceType": "BYTE_CONTENT", "byteContent": {"data": "eA=="}}], 200),
]  # fmt: skip


@pytest.mark.parametrize(("sources", "status"), SOURCES)
async def test_what_is_generated_from_elsewhere_is_judged(
    front: Front, sources: Any, status: int
) -> None:
    body = {
        "input": {"text": "what"},
        "retrieveAndGenerateConfiguration": {
            "type": "EXTERNAL_SOURCES",
            "externalSourcesConfiguration": {"modelArn": "m", "sources": sources},
        },
    }
    assert (await front.post("/retrieveAndGenerate", body)).status == status


async def test_a_stream_streams(tmp_path: Path) -> None:
    async with fronting(tmp_path) as front:
        front.script.going = asyncio.Event()
        answer = await front.through(generate(OPEN, stream="_stream"))
        events = iter(answer["stream"])
        first = await asyncio.wait_for(asyncio.to_thread(next, events), 20)
        assert first == {"output": {"text": "text of"}}
        front.script.going.set()
        assert await asyncio.to_thread(next, events) == first


# the others


async def test_agentic_retrieval_reads_each_of_its_knowledge_bases(front: Front) -> None:
    def call(*bases: str) -> Callable[[Any], Any]:
        retrievers = [
            {"configuration": {"knowledgeBase": {"knowledgeBaseId": base}}} for base in bases
        ]
        return lambda client: list(
            client.agentic_retrieve_stream(
                messages=[{"role": "user", "content": {"text": "what"}}],
                retrievers=retrievers,
                agenticRetrieveConfiguration={"foundationModelType": "MANAGED"},
                userContext={"userId": "bob"},
            )["stream"]
        )

    assert len(await front.through(call(OPEN))) == 2
    assert front.script.asked[-1]["userContext"] == {"userId": "ada"}
    for bases in ([SHUT], [OPEN, SHUT]):
        with pytest.raises(ClientError, match=SHUT):
            await front.through(call(*bases))


async def test_a_document_is_a_source_of_its_own(front: Front) -> None:
    def call(base: str, document: str = "d 1") -> Callable[[Any], Any]:
        return lambda client: client.get_document_content(
            knowledgeBaseId=base, dataSourceId="SOURCE0001", documentId=document
        )

    assert (await front.through(call(OPEN)))["mimeType"] == "text/plain"
    assert front.script.asked[-1] == {"userContext": {"userId": "ada"}}
    with pytest.raises(ClientError, match=SHUT):
        await front.through(call(SHUT))
    # A URL as a document's name can't be in a path that is judged.
    with pytest.raises(ClientError, match="escaped slash"):
        await front.through(call(OPEN, "s3://docs/1"))
    assert (await front.places())[0] == f"bedrock://kb/{OPEN}/SOURCE0001/d%201"


async def test_probes_of_access_lists_are_closed(front: Front) -> None:
    base = f"/knowledgebases/{OPEN}/datasources/SOURCE0001"
    for probe in ("check-ingested-document-acl", "get-ingested-document-acl"):
        denied(await front.post(f"{base}/{probe}", {"documentId": "d"}), "route_denied")


@pytest.mark.parametrize(
    ("arn", "status"),
    [
        (f"arn:aws:bedrock:eu-west-1:123456789012:knowledge-base/{OPEN}", 200),
        (f"arn:aws-us-gov:bedrock:eu-west-1:123456789012:knowledge-base/{OPEN}", 200),
        (f"arn:aws:bedrock:eu-west-1:123456789012:knowledge-base/{SHUT}", 403),
        (f"arn:aws:bedrock:eu-west-1:123456789012:knowledge-base/{OPEN}/../{SHUT}", 403),
        (OPEN, 403),
    ],
)
async def test_a_query_is_generated_for_its_knowledge_base(
    front: Front, arn: str, status: int
) -> None:
    body = {
        "queryGenerationInput": {"text": "what", "type": "TEXT"},
        "transformationConfiguration": {
            "mode": "TEXT_TO_SQL",
            "textToSqlConfiguration": {
                "type": "KNOWLEDGE_BASE",
                "knowledgeBaseConfiguration": {"knowledgeBaseArn": arn},
            },
        },
    }
    assert (await front.post("/generateQuery", body)).status == status


def invoke(agent: str = "AGENT00001", session: str = "s-1", **more: Any) -> Callable[[Any], Any]:
    return lambda client: list(
        client.invoke_agent(
            agentId=agent, agentAliasId="ALIAS00001", sessionId=session, inputText="x", **more
        )["completion"]
    )


async def test_an_agent_is_a_source_of_its_own(front: Front) -> None:
    assert len(await front.through(invoke())) == 2
    assert (await front.places())[0] == "bedrock://kb/agent/AGENT00001/ALIAS00001"
    with pytest.raises(ClientError, match="AGENT00002"):
        await front.through(invoke("AGENT00002"))
    # What a call adds to the agent's own sources is judged too.
    search: Any = {"vectorSearchConfiguration": {}}
    for base in (OPEN, SHUT):
        bases = [{"knowledgeBaseId": base, "retrievalConfiguration": search}]
        call = invoke(sessionState={"knowledgeBaseConfigurations": bases})
        if base == OPEN:
            await front.through(call)
        else:
            with pytest.raises(ClientError, match=SHUT):
                await front.through(call)
    files = [
        {"name": "f", "useCase": "CHAT",
         "source": {"sourceType": "S3", "s3Location": {"uri": "s3://shut/a"}}}
    ]  # fmt: skip
    with pytest.raises(ClientError, match="s3/shut/a"):
        await front.through(invoke(sessionState={"files": files}))


async def test_an_agents_session_belongs_to_the_first_user_who_states_it(front: Front) -> None:
    await front.through(invoke(session="s-1", memoryId="m-1"))
    await front.through(invoke(session="s-1"))
    with pytest.raises(ClientError, match="another user"):
        await front.through(invoke(session="s-1"), "bob")
    with pytest.raises(ClientError, match="another user"):
        await front.through(invoke(session="s-2", memoryId="m-1"), "bob")
    await front.through(invoke(session="s-2", memoryId="m-2"), "bob")
    path = "/agents/AGENT00001/agentAliases/ALIAS00001/memories?memoryType=SESSION_SUMMARY"
    denied(await front.bare("GET", f"{path}&memoryId=m-2"), "unresolved_source")
    assert (await front.bare("GET", f"{path}&memoryId=m-1")).status == 200


async def test_an_inline_agent_reads_what_the_request_gives_it(front: Front) -> None:
    def call(**more: Any) -> Callable[[Any], Any]:
        return lambda client: list(
            client.invoke_inline_agent(
                sessionId="i-1", foundationModel="m", instruction="x" * 40, inputText="x", **more
            )["completion"]
        )

    bases = [{"knowledgeBaseId": SHUT, "description": "d"}]
    arn = "arn:aws:bedrock:eu-west-1:123456789012:agent-alias/AGENT00002/ALIAS00001"
    await front.through(call())
    await front.through(call(knowledgeBases=[{"knowledgeBaseId": OPEN, "description": "d"}]))
    for more in (
        {"knowledgeBases": bases},
        {"collaborators": [{"foundationModel": "m", "instruction": "x" * 40,
                            "knowledgeBases": bases}]},
        {"collaboratorConfigurations": [{"collaboratorName": "c", "agentAliasArn": arn,
                                         "collaboratorInstruction": "x"}]},
        {"actionGroups": [{"actionGroupName": "a", "actionGroupExecutor": {
            "lambda": "arn:aws:lambda:x:123456789012:function:f"}}]},
        {"actionGroups": [{"actionGroupName": "a", "apiSchema": {
            "s3": {"s3BucketName": "shut", "s3ObjectKey": "k"}}}]},
    ):  # fmt: skip
        with pytest.raises(ClientError, match="allowed_sources"):
            await front.through(call(**more))
    assert len(front.upstream.seen) == 2


async def test_a_flow_is_a_source_of_its_own(front: Front) -> None:
    inputs = [{"nodeName": "n", "nodeOutputName": "o", "content": {"document": "x"}}]

    def call(flow: str, **more: Any) -> Callable[[Any], Any]:
        return lambda client: list(
            client.invoke_flow(
                flowIdentifier=flow, flowAliasIdentifier="ALIAS00001", inputs=inputs, **more
            )["responseStream"]
        )

    await front.through(call("FLOW000001"))
    await front.through(call("FLOW000001", executionId="run-1"))
    with pytest.raises(ClientError, match="another user"):
        await front.through(call("FLOW000001", executionId="run-1"), "bob")
    with pytest.raises(ClientError, match="FLOW000002"):
        await front.through(call("FLOW000002"))
    with pytest.raises(ClientError, match="continuation"):
        await front.through(call("FLOW000001", executionId="not-mine"))
    path = "/flows/FLOW000001/aliases/ALIAS00001/executions"
    denied(await front.bare("GET", f"{path}/exec-1/events?eventType=Node"), "unresolved_source")
    started = {"flowIdentifier": "FLOW000001", "flowAliasIdentifier": "ALIAS00001"}
    await front.through(lambda client: client.start_flow_execution(**started, inputs=inputs))
    assert (await front.bare("GET", f"{path}/exec-1/events?eventType=Node")).status == 200
    assert (await front.bare("GET", f"{path}/exec-1")).status == 200
    denied(await front.bare("GET", f"{path}/exec-2"), "unresolved_source")


# documents with a level of their own


VECTOR, MANAGED = "vectorSearchConfiguration", "managedSearchConfiguration"
MARKED = policy(allowed_sources=ALLOWED, max_sensitivity="medium")


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("search", [VECTOR, MANAGED, None])
@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, [0, 1]),
        ({"equals": {"key": "number", "value": 1}}, [1]),
        ({"in": {"key": "level", "value": ["low", "high", "critical"]}}, [0]),
        ({"orAll": [{"equals": {"key": "level", "value": "high"}},
                    {"equals": {"key": "number", "value": 0}}]}, [0]),
    ],
)  # fmt: skip
async def test_only_documents_of_the_levels_that_may_be_seen_are_found(
    tmp_path: Path, obeys: bool, search: str | None, own: Any, expected: list[int]
) -> None:
    async with fronting(tmp_path, MARKED, sensitivity_field="level") as front:
        front.script.obeys = obeys
        more: dict[str, Any] = {}
        if search is not None:
            more["retrievalConfiguration"] = {search: {} if own is None else {"filter": own}}
        answer = await front.through(retrieve(**more))
        [asked] = front.script.asked
        [(where, pushed)] = asked["retrievalConfiguration"].items()
        condition = {"in": {"key": "level", "value": ["low", "medium"]}}
        if search is None or own is None:
            assert pushed["filter"] == condition
        else:
            assert pushed["filter"] == {"andAll": [own, condition]}
        assert where == search or search is None
        # A server that ignores the condition is caught by the check.
        found = expected if obeys and search is not None else [0, 1]
        assert numbers(answer) == found
        [lineage] = await front.sidecar.lineage()
        assert lineage["detail"]["withheld"] == (0 if obeys else len(LEVELS) - 2)


async def test_an_agent_that_may_see_every_level_sees_every_document(tmp_path: Path) -> None:
    readers = policy(allowed_sources=ALLOWED, max_sensitivity="critical")
    async with fronting(tmp_path, readers, sensitivity_field="level") as front:
        assert numbers(await front.through(retrieve())) == list(range(len(LEVELS)))
        assert "retrievalConfiguration" not in front.script.asked[0]


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b"", b'{"retrievalResults": {}}', b'{"retrievalResults": [7]}', b"{}",
     b'{"retrievalResults": [], "nextToken": 7}'],
)  # fmt: skip
async def test_a_response_that_can_not_be_parsed_is_withheld(tmp_path: Path, body: bytes) -> None:
    async with fronting(tmp_path, MARKED, sensitivity_field="level") as front:
        front.upstream.script = answer(body=body)
        answered = await front.post(f"/knowledgebases/{OPEN}/retrieve", QUERY)
        assert answered.status == 502


async def test_what_can_not_be_checked_is_judged_at_the_highest_level(tmp_path: Path) -> None:
    async with fronting(tmp_path, MARKED, sensitivity_field="level") as front:
        for call in (generate(OPEN), generate(OPEN, stream="_stream"), invoke()):
            with pytest.raises(ClientError, match="critical"):
                await front.through(call)
        assert front.upstream.seen == []


# the table


FILLED = re.compile(r"\{.*?\}")


def test_every_operation_of_bedrock_has_its_row() -> None:
    model = botocore.session.get_session().get_service_model("bedrock-agent-runtime")
    dialect = Bedrock(source(1, "bedrock"), CLOCK.monotonic)
    classes: dict[str, RouteClass] = {}
    for name in model.operation_names:
        http = model.operation_model(name).http
        found = dialect.match(http["method"], canonical(FILLED.sub("x", http["requestUri"])))
        assert found is not None, name
        classes[name] = found.route.route_class
    closed = {name for name, class_ in classes.items() if class_ in ALWAYS_DENIED}
    assert closed == {
        "CheckIngestedDocumentAcl", "GetIngestedDocumentAcl", "CreateSession", "GetSession",
        "UpdateSession", "EndSession", "DeleteSession", "ListSessions", "CreateInvocation",
        "ListInvocations", "PutInvocationStep", "GetInvocationStep", "ListInvocationSteps",
        "TagResource", "UntagResource", "ListTagsForResource",
    }  # fmt: skip
    assert {name for name, class_ in classes.items() if class_ is RouteClass.WRITE} == {
        "DeleteAgentMemory", "StopFlowExecution",
    }  # fmt: skip


def test_the_members_of_each_body_are_the_models() -> None:
    """The table covers all of botocore's members; new ones have to be reviewed first."""
    model = botocore.session.get_session().get_service_model("bedrock-agent-runtime")
    source_text = Path(__file__).parents[4] / "sidecar/protocols/bedrock/routes.py"
    known = set(source_text.read_text().replace('"', " ").split())
    dialect = Bedrock(source(1, "bedrock"), CLOCK.monotonic)
    for name in model.operation_names:
        operation = model.operation_model(name)
        http = operation.http
        found = dialect.match(http["method"], canonical(FILLED.sub("x", http["requestUri"])))
        assert found is not None
        if found.route.route_class in ALWAYS_DENIED or operation.input_shape is None:
            continue
        for member, shape in operation.input_shape.members.items():
            place = shape.serialization.get("location")
            if place not in ("uri", "header"):
                assert shape.serialization.get("name", member) in known, (name, member)


async def test_a_closed_route_is_closed(tmp_path: Path) -> None:
    async with fronting(tmp_path, writes="allow") as front:
        for route in ROUTES:
            if route.route_class not in ALWAYS_DENIED:
                continue
            path = route.pattern.replace("{", "").replace("}", "")
            for method in route.methods.split():
                denied(await front.bare(method, path), "route_denied")
        assert front.upstream.seen == []
