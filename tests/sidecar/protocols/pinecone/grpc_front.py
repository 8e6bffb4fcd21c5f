"""A listener in front of a minimal Pinecone that answers REST and gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from policies.definitions.model import Policy
from sidecar.http.grpc.framing import frame
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.pinecone.grpc_server import GrpcServer
from tests.sidecar.protocols.pinecone.server import Server
from tests.sidecar.proxy.http2_client import Exchange, Http2Client

CALL = (("content-type", "application/grpc"), ("te", "trailers"))


class Called(NamedTuple):
    front: Minimal
    upstream: GrpcServer

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.front.port}"

    @property
    def direct(self) -> str:
        """The address of the data source itself."""
        return f"127.0.0.1:{self.upstream.port}"

    async def call(self, method: str, message: bytes, *fields: tuple[str, str]) -> Exchange:
        """Call a method with one message, and `fields` as metadata."""
        return await self.ask(f"/VectorService/{method}", frame(message), *CALL, *fields)

    async def ask(
        self, path: str, body: bytes, *fields: tuple[str, str], method: str = "POST"
    ) -> Exchange:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.front.port)
        try:
            client = Http2Client(reader, writer)
            return await client.ask(path, *fields, method=method, host="kb", body=body)
        finally:
            writer.close()


@asynccontextmanager
async def in_front_of_calls(
    tmp_path: Path, server: Server, *policies: Policy, **changes: Any
) -> AsyncIterator[Called]:
    with GrpcServer(server).running() as upstream:
        changes = {"grpc": f"http://127.0.0.1:{upstream.port}"} | changes
        script = scripted(server.answer)
        async with minimal(tmp_path, "pinecone", script, *policies, **changes) as front:
            yield Called(front, upstream)
