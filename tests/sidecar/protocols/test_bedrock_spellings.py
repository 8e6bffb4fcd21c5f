"""Whatever Bedrock received names no knowledge base, agent or object that may not be read, however
the request spelt it: in the path, at any depth of the body, as an identifier, an ARN or an address,
escaped or not."""

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.settings import Aws
from tests.properties import examples
from tests.sidecar.protocols.aws import ACCESS, REGION, SECRET, credentials_file, fault
from tests.sidecar.protocols.bedrock_server import OPEN, SHUT
from tests.sidecar.proxy.stand import (
    DataSource,
    Seen,
    answer,
    ask,
    data_source,
    listening,
    policy,
    sidecar,
    source,
)

ARN = "arn:aws:bedrock:eu-west-1:123456789012"
SPELT = [
    OPEN, SHUT, SHUT.lower(), f"{ARN}:knowledge-base/{SHUT}", f"{ARN}:knowledge-base/{OPEN}",
    f"{ARN}:agent-alias/{SHUT}/ALIAS00001", f"s3://{SHUT.lower()}/k", f"s3://open/../{SHUT}",
    "s3://open/k", "", 7, None, [SHUT], {"knowledgeBaseId": SHUT},
]  # fmt: skip
NAMES = [
    "knowledgeBaseId", "KnowledgeBaseId", "knowledgeBaseArn", "agentAliasArn", "uri", "memoryId",
    "s3BucketName", "s3ObjectKey", "lambda", "sessionId", "nextToken", "executionId",
]  # fmt: skip
REFERENCES = (
    "knowledgebaseid", "knowledgebasearn", "agentaliasarn", "memoryid", "s3bucketname", "lambda",
)  # fmt: skip
PARTS = [
    "knowledgeBaseConfiguration", "externalSourcesConfiguration", "s3Location", "sources",
    "retrievers", "configuration", "knowledgeBase", "knowledgeBases", "sessionState", "deep",
]  # fmt: skip
TOP = [
    "retrieveAndGenerateConfiguration", "retrievers", "transformationConfiguration", "sessionState",
    "knowledgeBases", "collaborators", "retrievalConfiguration", "sessionId", "nextToken",
    "memoryId", "inputs", "input", "surprise",
]  # fmt: skip
LEAVES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(SPELT), max_size=2)
DEEP = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(PARTS), inner, max_size=2)
    ),
    max_leaves=4,
)
BODIES = st.dictionaries(st.sampled_from(TOP), DEEP, max_size=2)
TARGETS = st.sampled_from(
    [
        f"/knowledgebases/{OPEN}/retrieve", f"/knowledgebases/{SHUT}/retrieve",
        f"/knowledgebases/{OPEN}/../{SHUT}/retrieve", f"/knowledgebases/%4B{SHUT[1:]}/retrieve",
        f"/knowledgebases/{ARN}:knowledge-base%2F{SHUT}/retrieve", "/retrieveAndGenerate",
        f"/knowledgebases/{SHUT.lower()}/retrieve", "/retrieveAndGenerateStream",
        "/agenticRetrieveStream", "/generateQuery",
        f"/agents/{OPEN}/agentAliases/A/sessions/s/text",
        f"/agents/{SHUT}/agentAliases/A/sessions/s1/text", "/agents/s2", f"/flows/{OPEN}/aliases/A",
        f"/flows/{SHUT}/aliases/A",
        f"/knowledgebases/{OPEN}/datasources/D/documents/{SHUT}/content",
        f"/flows/{OPEN}/aliases/A/executions", f"/knowledgebases/{OPEN}/retrieve?nextToken={SHUT}",
        f"/knowledgebases/{OPEN};{SHUT}/retrieve", f"/knowledgebases/{OPEN}%00{SHUT}/retrieve",
    ]
)  # fmt: skip


class Running:
    def __init__(self, runner: asyncio.Runner, port: int, upstream: DataSource) -> None:
        self.runner = runner
        self.port = port
        self.upstream = upstream


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    may = policy(
        allowed_sources=("bedrock://kb/*",), denied_sources=(f"*{SHUT}*", f"*{SHUT.lower()}*")
    )
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> Running:
            upstream = await stack.enter_async_context(data_source(answer(body=b"{}")))
            made = await stack.enter_async_context(sidecar(Path(folder), may))
            aws = Aws(region=REGION, credentials_file=credentials_file(Path(folder)))
            configured = source(upstream.port, "bedrock", writes="allow", aws=aws)
            port = await stack.enter_async_context(listening(made, configured))
            return Running(runner, port, upstream)

        yield runner.run(enter())
        runner.run(stack.aclose())


def names(seen: Seen) -> list[str]:
    """What a request names, read as loosely as anybody might."""
    found = [unquote(seen.target)]
    pending = [json.loads(seen.body)]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
            for name, value in node.items():
                of_s3 = name == "s3ObjectKey" and "s3BucketName" in node
                of_s3 = of_s3 or (name == "uri" and str(value).startswith("s3:"))
                if of_s3 or name.lower() in REFERENCES:
                    found.append(str(value))
    return found


@given(TARGETS, BODIES, st.booleans())
@examples(400)
def test_what_arrives_names_nothing_that_may_not_be_read(
    running: Running, target: str, body: dict[str, Any], escaped: bool
) -> None:
    running.upstream.begun.clear()
    text = json.dumps(body)
    if escaped:
        text = re.sub("KBSH", r"\\u004bBS\\u0048", text)
    lines = [
        f"POST {target} HTTP/1.1", "Host: kb", "Connection: close",
        "Content-Type: application/json", f"Content-Length: {len(text)}",
    ]  # fmt: skip
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    answered = running.runner.run(ask(running.port, head + text.encode()))
    assert answered.status in (200, 400, 403)
    if answered.status != 200:
        assert running.upstream.begun == []
        return
    [seen] = running.upstream.begun
    assert fault(seen, "bedrock", {ACCESS: SECRET}) is None
    assert not [name for name in names(seen) if SHUT.lower() in name.lower()]
