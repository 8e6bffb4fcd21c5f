"""A listener in front of moto's S3 server, with a data source between them that verifies
signatures."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from policies.definitions.model import Policy
from sidecar.settings.model import Aws, Source
from sidecar.settings.sections import SpoolSettings
from tests.sidecar.protocols.aws import ACCESS, REGION, SECRET, Verifying, credentials_file
from tests.sidecar.protocols.ticking import Ticking
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, data_source

KEYS = ("open/a.txt", "open/b.txt", "open/deep/c.txt", "shut/s.txt", "top.txt")
UNREADABLE = "unreadable_request"


def client(
    port: int,
    access: str = ACCESS,
    secret: str = SECRET,
    endpoint_url: str | None = None,
    **config: Any,
) -> Any:
    """boto3's S3 client, with only its address changed."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url or f"http://127.0.0.1:{port}",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 1}, **config),
    )


@dataclass
class S3Front:
    """A listener in front of S3, and a bucket for one test, in which `open/` may be read."""

    port: int
    bucket: str
    upstream: DataSource
    script: Verifying
    sidecar: Sidecar
    ticking: Ticking
    direct: Any
    source: Source

    async def through(self, call: Callable[[Any], Any]) -> Any:
        """The result of `call` with a client whose credentials are unknown to the data source."""
        agents = client(self.port, "AKIAAGENT", "none")
        return await asyncio.to_thread(call, agents)

    async def both(self, call: Callable[[Any], Any]) -> Any:
        """The same, and checks that it equals S3's own response."""
        through = await self.through(call)
        assert through == await asyncio.to_thread(call, self.direct)
        return through

    async def ask(self, method: str, target: str, *fields: str, body: bytes = b"") -> Answered:
        lines = [f"{method} {target} HTTP/1.1", "Host: kb", "Connection: close", *fields]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def place(self, key: str) -> str:
        return f"s3://kb/{self.bucket}/{key}"


@asynccontextmanager
async def s3_fronting(
    moto: int,
    tmp_path: Path,
    *policies: Policy,
    spool: SpoolSettings | None = None,
    **changes: Any,
) -> AsyncIterator[S3Front]:
    bucket = f"lake-{os.urandom(6).hex()}"
    direct = client(moto)
    where = {"LocationConstraint": "eu-west-1"}
    direct.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
    for key in KEYS:
        direct.put_object(Bucket=bucket, Key=key, Body=f"text of {key}".encode())
    allowed = policy(
        allowed_sources=(
            f"s3://kb/{bucket}/",
            f"s3://kb/{bucket}/open/*",
            f"s3://kb/{bucket}/new/*",
        )
    )
    script, ticking = Verifying(moto, "s3"), Ticking()
    aws = Aws(region=REGION, credentials_file=credentials_file(tmp_path))
    async with (
        data_source(script) as upstream,
        sidecar(tmp_path, *(policies or (allowed,)), spool=spool) as made,
    ):
        configured = replace(source(upstream.port, "s3", aws=aws), **changes)
        async with listening(made, configured, clock=ticking.clock) as port:
            yield S3Front(port, bucket, upstream, script, made, ticking, direct, configured)
            # Everything that the sidecar sent was signed correctly.
            assert script.faults == []


def denied(answered: Answered, policy_name: str, status: int = 403) -> None:
    """Denied by this check, with nothing of the data source's in the response."""
    assert answered.status == status, answered.raw[:400]
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert f"<policy_name>{policy_name}</policy_name>".encode() in answered.body
    assert b"text of" not in answered.raw


def text(answer: Any) -> bytes:
    body: bytes = answer["Body"].read()
    return body
