"""A listener in front of a minimal Bedrock, boto3's calls through it, and what the tests share."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from policies.definitions.model import Policy
from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import REGION, credentials_file
from tests.sidecar.protocols.bedrock.server import OPEN
from tests.sidecar.protocols.bedrock.server import Bedrock as Server
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, data_source

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


def denied(answered: Answered, policy_name: str, status: int = 403) -> None:
    """Denied by this check, with nothing of the data source's in the response."""
    assert answered.status == status, answered.raw[:400]
    assert answered.json["decision"]["policy_name"] == policy_name
    assert b"text of" not in answered.raw


QUERY = {"retrievalQuery": {"text": "what"}}


def retrieve(base: str = OPEN, **more: Any) -> Callable[[Any], Any]:
    return lambda client: client.retrieve(knowledgeBaseId=base, **QUERY, **more)


def numbers(answer: Any) -> list[int]:
    return [each["metadata"]["number"] for each in answer["retrievalResults"]]


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


def invoke(agent: str = "AGENT00001", session: str = "s-1", **more: Any) -> Callable[[Any], Any]:
    return lambda client: list(
        client.invoke_agent(
            agentId=agent, agentAliasId="ALIAS00001", sessionId=session, inputText="x", **more
        )["completion"]
    )
