"""A sidecar in front of a minimal Weaviate that answers REST and gRPC, at a port for each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.definitions.model import Policy
from policies.ground.addresses import ListenAddress
from sidecar.http.request_body import BodyBudget
from sidecar.proxy.assembly import grpc_listener
from sidecar.proxy.limits import LIMITS, ProxyLimits
from tests.sidecar.protocols.minimal import scripted
from tests.sidecar.protocols.weaviate.grpc_server import GrpcServer, grpc_server
from tests.sidecar.protocols.weaviate.server import Server
from tests.support.proxy import Sidecar, sidecar, source
from tests.support.scripted_source import DataSource, data_source


@dataclass
class GrpcFront:
    """The sidecar's ports, and those of the data source behind it."""

    port: int
    grpc_port: int
    upstream: DataSource
    upstream_grpc_port: int
    served: GrpcServer
    sidecar: Sidecar

    async def sources(self) -> list[tuple[str, str]]:
        """The decision and source of each record."""
        return [(each[0], each[2]) for each in await self.sidecar.decisions()]


@asynccontextmanager
async def grpc_front(
    tmp_path: Path,
    server: Server,
    *policies: Policy,
    limits: ProxyLimits = LIMITS,
    bodies: BodyBudget | None = None,
    **changes: Any,
) -> AsyncIterator[GrpcFront]:
    with grpc_server(server) as (upstream_port, served):
        async with (
            data_source(scripted(server.answer)) as upstream,
            sidecar(tmp_path, *policies) as made,
        ):
            configured = source(
                upstream.port,
                "weaviate",
                **{
                    "grpc": f"http://127.0.0.1:{upstream_port}",
                    "grpc_listen": ListenAddress("127.0.0.1", 0),
                    **changes,
                },
            )
            proxy = made.proxy((configured,), limits=limits, bodies=bodies)
            await proxy.start()
            try:
                ports = proxy.port("kb"), proxy.port(grpc_listener("kb"))
                yield GrpcFront(*ports, upstream, upstream_port, served, made)
            finally:
                await proxy.close(1)
