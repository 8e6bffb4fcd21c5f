"""A listener in front of a minimal Qdrant with both of its interfaces, and its client, which uses
gRPC. HTTP/1.1 and HTTP/2 arrive at the same port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from qdrant_client import AsyncQdrantClient, QdrantClient

from policies.definitions.model import Policy
from tests.sidecar.protocols.minimal import Minimal, minimal, scripted
from tests.sidecar.protocols.qdrant.grpc_server import GrpcServer
from tests.sidecar.protocols.qdrant.server import Server

Script = Callable[[Any], Awaitable[list[Any]]]
"""What a client does. It awaits each call."""


class GrpcFront:
    def __init__(self, front: Minimal, served: GrpcServer) -> None:
        self.front = front
        self.served = served

    @property
    def calls(self) -> list[str]:
        """The methods of all calls that reached Qdrant."""
        return self.served.methods

    async def through(self, script: Script, *, sync: bool = True, **options: Any) -> list[Any]:
        """What the script gets through the listener."""
        return await run(script, self.front.port, self.front.port, sync=sync, **options)

    async def straight(self, script: Script, *, sync: bool = True) -> list[Any]:
        """What the script gets from Qdrant itself."""
        return await run(script, self.front.upstream.port, self.served.port, sync=sync)


class _Awaitable:
    """A synchronous client whose calls can be awaited: each runs in a thread."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._client, name)
        if not callable(called):
            return _Awaitable(called)
        return lambda *given, **named: asyncio.to_thread(called, *given, **named)


async def run(
    script: Script, port: int, grpc_port: int, *, sync: bool, **options: Any
) -> list[Any]:
    kind: Any = QdrantClient if sync else AsyncQdrantClient
    client = kind(
        host="127.0.0.1",
        port=port,
        grpc_port=grpc_port,
        prefer_grpc=True,
        timeout=10,
        # Its check of the server's version runs in a thread that outlives a test.
        check_compatibility=False,
        **options,
    )
    try:
        return await script(_Awaitable(client) if sync else client)
    finally:
        closing = client.close()
        if closing is not None:
            await closing


@asynccontextmanager
async def grpc_front(
    tmp_path: Path, server: Server, *policies: Policy, **changes: Any
) -> AsyncIterator[GrpcFront]:
    with GrpcServer(server).running() as served:
        address = f"http://127.0.0.1:{served.port}"
        script = scripted(server.answer)
        async with minimal(tmp_path, "qdrant", script, *policies, grpc=address, **changes) as front:
            yield GrpcFront(front, served)
