"""What Bedrock reads besides a knowledge base: documents, agents, flows, and what a call adds."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sidecar.protocols.bedrock.front import Front, denied, invoke
from tests.sidecar.protocols.bedrock.server import OPEN, SHUT


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


async def test_requests_about_access_lists_are_denied(front: Front) -> None:
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


async def test_an_inline_agent_is_judged_by_the_sources_in_its_request(front: Front) -> None:
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
