"""What the tests of AWS signatures share: a listener that signs, in front of a scripted data
source."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from policies.definitions.model import Policy
from sidecar.settings.model import Aws, Source
from tests.sidecar.protocols.aws import (
    ACCESS,
    SECRET,
)
from tests.sidecar.protocols.ticking import Ticking
from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.proxy import Sidecar, listening, sidecar, source
from tests.support.scripted_source import DataSource, data_source

SECRETS = {ACCESS: SECRET}


class SigningFront:
    """A listener in front of a scripted data source."""

    def __init__(self, port: int, upstream: DataSource, made: Sidecar, ticking: Ticking) -> None:
        self.port = port
        self.upstream = upstream
        self.sidecar = made
        self.ticking = ticking

    async def ask(self, method: str, target: str, *fields: str, body: bytes = b"") -> Answered:
        lines = [f"{method} {target} HTTP/1.1", "Host: kb", "Connection: close", *fields]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


@asynccontextmanager
async def signing_front(
    tmp_path: Path, aws: Aws, *policies: Policy, kind: str = "s3"
) -> AsyncIterator[SigningFront]:
    ticking = Ticking()
    async with data_source() as upstream, sidecar(tmp_path, *policies) as made:
        configured: Source = source(upstream.port, kind, writes="allow", aws=aws)
        async with listening(made, configured, clock=ticking.clock) as port:
            yield SigningFront(port, upstream, made, ticking)
