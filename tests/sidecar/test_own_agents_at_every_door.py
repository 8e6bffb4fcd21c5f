"""Whichever way a call comes in, a sidecar decides it only for the agents of its own key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import orjson
import pytest

from policies.definitions.model import Key, Policy
from policies.ground.addresses import ListenAddress
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_document, key_name, role_document, role_name
from sidecar.proxy.assembly import Proxy
from sidecar.settings.model import RestRule, Source
from sidecar.settings.sections import AuthzenSettings, Door
from tests.sidecar.doors.grpc.envoy_messages import message
from tests.sidecar.doors.grpc.grpc_setup import CHECK
from tests.support.fake_control_api import AGENT, ROLE, SIDECAR_KEY, fake_control_api
from tests.support.scripted_source import answer, data_source
from tests.support.sidecar import EVALUATE, RunningSidecar, running_sidecar

LOCAL = ListenAddress("127.0.0.1", 0)
CALLER = make_key(b"caller".ljust(32))
EVERYTHING = Policy("pol_all", 1, "all", ROLE, ("*",), (), "critical")
CALL = orjson.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "open", "arguments": {}}}
)
NAMING = ("api", "batch", "authzen", "authzen batch")
"""Ways on which the call itself may name an agent."""
DOORS = ("edge", "nginx", "ingress", "tools", "mesh")
"""Ways on which the caller's key says who speaks."""
PROXIED = ("rest", "mcp")
"""Ways on which the agent is that of the sidecar's settings."""


class Ways:
    """A sidecar with every way in. Everything is allowed to its role."""

    def __init__(self, running: RunningSidecar, channel: grpc.aio.Channel, control: Any) -> None:
        self.running, self._channel, self._control = running, channel, control
        self._seen = 0

    async def bind(self, own: tuple[str, ...], bound: str | None) -> None:
        """`own` are the agents of the sidecar's key, `bound` is the one of the caller's."""
        sidecar = Key("key_s", "sidecar", agent_ids=own)
        caller = Key("key_c", "evaluate", bound, (ROLE,))
        revision = self._control.publish(
            {
                key_name(key_digest(SIDECAR_KEY)): key_document(sidecar),
                key_name(key_digest(CALLER)): key_document(caller),
                role_name(ROLE): role_document([EVERYTHING]),
            }
        )
        await self.running.follows(revision)

    async def status(self, way: str, agent_id: str | None) -> int:
        """What a call on this way is answered: an HTTP status, of gRPC that of the message."""
        if way in PROXIED:
            return await self._proxied(way)
        if way == "mesh":
            return await self._grpc()
        if way in DOORS:
            return await self._check(way)
        subject = {"type": "agent", "id": agent_id}
        question: dict[str, Any] = {
            "subject": {"type": "user", "id": "ann"} if agent_id is None else subject,
            "action": {"name": "read"},
            "resource": {"type": "source", "id": "rates"},
            "context": {"user_id": "ann"},
        }
        retrieval = {
            "agent_role": ROLE,
            "user_id": "ann",
            "source_id": "rates",
            "sensitivity_level": "low",
            **({} if agent_id is None else {"agent_id": agent_id}),
        }
        path, body = {
            "api": (EVALUATE, retrieval),
            "batch": (f"{EVALUATE}/batch", {"items": [retrieval]}),
            "authzen": ("/access/v1/evaluation", question),
            "authzen batch": ("/access/v1/evaluations", {"evaluations": [question]}),
        }[way]
        return (await self.running.call("POST", path, orjson.dumps(body), key=CALLER)).status

    async def decided(self) -> list[str]:
        """The policies' names of the denials since the last call of this, or `ALLOW`."""
        responses = await self.running.responses()
        new, self._seen = responses[self._seen :], len(responses)
        allowed = {"ALLOW": "ALLOW"}
        return [allowed.get(each["decision"], each["policy_name"]) for each in new]

    async def _check(self, way: str) -> int:
        headers = {
            "edge": {},
            "tools": {"X-Envoy-Auth-Partial-Body": "false"},
            "nginx": {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/rates"},
            "ingress": {"X-Original-Method": "GET", "X-Original-URI": "/rates"},
        }[way]
        path = {"edge": "edge/rates", "tools": "tools/mcp"}.get(way, way)
        method, body = ("POST", CALL) if way == "tools" else ("GET", None)
        sent = await self.running.call(
            method,
            f"/v1/check/{path}",
            body,
            key=CALLER,
            headers={**headers, "x-sluice-user": "ann"},
        )
        return sent.status

    async def _grpc(self) -> int:
        request = message("CheckRequest")()
        http = request.attributes.request.http
        http.method, http.path, http.host, http.size = "GET", "/rates", "crm.test", -1
        called: Any = self._channel.unary_unary(CHECK)
        metadata = [("x-api-key", CALLER)]
        told = message("CheckResponse").FromString(
            await called(request.SerializeToString(), metadata=metadata, timeout=20)
        )
        return 200 if told.status.code == 0 else told.denied_response.status.code

    async def _proxied(self, way: str) -> int:
        [proxy] = [each for each in self.running.parts.listeners if isinstance(each, Proxy)]
        line, body = ("GET /rates", b"") if way == "rest" else ("POST /mcp", CALL)
        alias = "crm" if way == "rest" else "tools"
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port(alias))
        head = (
            f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        try:
            async with asyncio.timeout(20):
                return int((await reader.read()).split(b" ")[1])
        finally:
            writer.close()


@pytest.fixture
async def ways(tmp_path: Path) -> AsyncIterator[Ways]:
    async with every_way(tmp_path) as made:
        yield made


@asynccontextmanager
async def every_way(tmp_path: Path) -> AsyncIterator[Ways]:
    async with fake_control_api() as control, data_source(answer()) as upstream:
        control.create_tenant()
        address = f"http://127.0.0.1:{upstream.port}"
        routes = (RestRule("GET", "/{name}", "retrieve", "{name}"),)
        sources = (
            Source("crm", "rest", address, LOCAL, "low", routes=routes),
            Source("tools", "mcp", address, LOCAL, "low"),
        )
        doors = (
            Door("edge", "envoy_http", "crm"),
            Door("nginx", "forward_auth", "crm"),
            Door("ingress", "forward_auth", "crm", request_from="original"),
            Door("tools", "envoy_http", "tools"),
            Door("mesh", "envoy_grpc", "crm", LOCAL),
        )
        async with running_sidecar(
            tmp_path, control, sources=sources, doors=doors, authzen=AuthzenSettings()
        ) as running:
            [mesh] = running.parts.doors.listeners
            async with grpc.aio.insecure_channel(str(mesh.address)) as channel:
                yield Ways(running, channel, control)


async def test_the_key_of_another_sidecar_s_agent_is_refused_at_every_door(ways: Ways) -> None:
    await ways.bind(("agt_of_this_sidecar",), AGENT)
    for way in (*NAMING, *DOORS):
        assert await ways.status(way, AGENT) == 403, way
    assert await ways.decided() == []
    # It is the binding that refuses: the same key decides at its own agent's sidecar.
    await ways.bind((AGENT,), AGENT)
    for way in (*NAMING, *DOORS):
        await ways.status(way, AGENT)
        assert await ways.decided() == ["ALLOW"], way


async def test_a_call_that_names_another_agent_is_denied_at_every_door(ways: Ways) -> None:
    await ways.bind(("agt_of_this_sidecar",), None)
    for way in (*NAMING, *PROXIED):
        await ways.status(way, AGENT)
        assert await ways.decided() == ["key_agent_binding"], way


@pytest.mark.parametrize("own", [(AGENT,), (AGENT, "absent")])
async def test_a_call_without_an_agent_must_be_permitted_at_every_door(
    ways: Ways, own: tuple[str, ...]
) -> None:
    await ways.bind(own, None)
    expected = "ALLOW" if "absent" in own else "key_agent_binding"
    for way in (*NAMING, *DOORS):
        await ways.status(way, None)
        assert await ways.decided() == [expected], way
