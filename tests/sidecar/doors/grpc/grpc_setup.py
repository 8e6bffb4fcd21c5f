"""A gRPC check door over a real enforcer and spool, and a client that asks it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from policies.definitions.model import Key, Policy
from policies.ground.addresses import ListenAddress
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_document, key_name
from sidecar.api.http_server import HttpServer
from sidecar.doors.grpc.server import MAX_CALLS, GrpcMethods
from sidecar.doors.grpc.service import CheckService
from sidecar.doors.judgement import Judgement
from sidecar.http.rendered_response import ResponseRenderer
from sidecar.http.server.head_cache import KEY_BYTES, HeadCache
from sidecar.http.tls_contexts import server_context
from sidecar.proxy.routing.source_endpoint import SharedParts
from sidecar.settings.model import Pair
from sidecar.settings.sections import Door
from tests.sidecar.doors.door_setup import shared_parts
from tests.sidecar.doors.grpc.envoy_messages import message
from tests.support.proxy import CLOCK, ROLE, Sidecar, sidecar, source

CHECK = "/envoy.service.auth.v3.Authorization/Check"
HEALTH = "/grpc.health.v1.Health/Check"
KEY = make_key(b"gateway".ljust(32))
LOCAL = ListenAddress("127.0.0.1", 0)


class GrpcDoor:
    """A door `edge` to the source `kb`, with a channel to it."""

    def __init__(
        self, made: Sidecar, server: HttpServer, judgement: Judgement, shared: SharedParts
    ) -> None:
        self.sidecar = made
        self.server = server
        self.judgement = judgement
        self.shared = shared
        self.port = server.address.port
        self.ready = True
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")

    async def call(self, data: bytes, *keys: str, method: str = CHECK) -> bytes:
        """The bytes that answer these. Raises `grpc.aio.AioRpcError` if the call fails."""
        metadata = [("x-api-key", key) for key in keys]
        called: Any = self.channel.unary_unary(method)
        return bytes(await called(data, metadata=metadata, timeout=20))

    async def check(self, request: Any, *keys: str) -> Any:
        """The CheckResponse to a CheckRequest, by default with the gateway's key."""
        answer = await self.call(request.SerializeToString(), *(keys or (KEY,)))
        return message("CheckResponse").FromString(answer)

    async def records(self) -> list[dict[str, Any]]:
        """The public part of each decision's request, with its answer."""
        return [
            {**record["pub"]["request"], **record["pub"]["response"]}
            for record in await self.sidecar.records()
            if record["kind"] == "decision"
        ]


def publish_key(made: Sidecar, text: str = KEY, **changes: Any) -> None:
    """Make `text` a key of the one role."""
    members: dict[str, Any] = {"permitted_roles": (ROLE,), **changes}
    scope = members.pop("scope", "evaluate")
    document = key_document(Key("key_gateway", scope, **members))
    made.publish_document(key_name(key_digest(text)), document)


@asynccontextmanager
async def grpc_door(
    tmp_path: Path,
    *policies: Policy,
    settings: Door | None = None,
    port: int = 9,
    **changes: Any,
) -> AsyncIterator[GrpcDoor]:
    """A door to a source with these changes, whose data source is at `port`."""
    async with sidecar(tmp_path, *policies) as made:
        settings = settings or Door("edge", "envoy_grpc", "kb", LOCAL)
        configured = replace(source(port), **changes)
        shared = shared_parts(made)
        judgement = Judgement(settings, configured, shared, made.keys)
        metrics, files = made.metrics, settings.listen_tls
        methods = GrpcMethods(
            CheckService(judgement, configured.kind, metrics.grpc_checks),
            lambda: door.ready,
            shared.bodies,
            ResponseRenderer(CLOCK),
            metrics.responses,
            "door",
        )
        tls = (
            None
            if files is None
            else server_context(Pair(files.certificate, files.key), files.client_ca)
        )
        server = HttpServer(
            settings.listen or LOCAL,
            methods,
            made.own_ports,
            HeadCache(bytes(KEY_BYTES)),
            shared.connections,
            tls,
            MAX_CALLS,
        )
        publish_key(made)
        await server.start()
        door = GrpcDoor(made, server, judgement, shared)
        try:
            yield door
        finally:
            await door.channel.close()
            await server.close(5)
            judgement.close()
            shared.worker.close()


def code(answer: Any) -> int:
    return int(answer.status.code)


def headers(answer: Any) -> dict[str, str]:
    """The headers that the client of a denied request gets, or the data source of an allowed
    one."""
    named = "denied_response" if answer.HasField("denied_response") else "ok_response"
    return {each.header.key: each.header.value for each in getattr(answer, named).headers}
