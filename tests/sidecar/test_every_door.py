"""One retrieval, asked for at every door: the same decision, the same record but for its source
type, and the same metrics."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
import orjson
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from policies.definitions.model import SENSITIVITIES, Agent, AgentStatus, Key, Policy
from policies.ground.addresses import ListenAddress
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
)
from sidecar.proxy.assembly import Proxy
from sidecar.settings.model import RestRule, Source
from sidecar.settings.sections import AuthzenSettings, Door
from tests.sidecar.doors.grpc.envoy_messages import message
from tests.sidecar.doors.grpc.grpc_setup import CHECK
from tests.sidecar.proxy.http2_client import Http2Client
from tests.support.fake_control_api import AGENT, EVALUATE_KEY, ROLE, fake_control_api
from tests.support.properties import few
from tests.support.scripted_source import answer, data_source
from tests.support.sidecar import EVALUATE, Answer, RunningSidecar, running_sidecar

LOCAL = ListenAddress("127.0.0.1", 0)
CRM = ("contracts", "contracts-2024", "rates", "payroll")
PATTERNS = (*CRM, "contracts*", "*", "pay?oll")
TASKS = ("review", "export")
AGENTS = {
    AGENT: ROLE,
    "agt_clerk": "clerk",
    "agt_suspended": "clerk",
    "agt_unknown": "teller",
}
"""By agent, the role that it acts in. The last is not in the registry."""
KEYS = {agent: make_key(agent.encode().ljust(32)) for agent in AGENTS} | {AGENT: EVALUATE_KEY}


@dataclass(frozen=True)
class Asked:
    """A retrieval as an agent would ask for it."""

    agent: str
    source: str
    level: str
    user: str
    session: str | None
    task: str | None

    @property
    def role(self) -> str:
        return AGENTS[self.agent]

    @property
    def fields(self) -> dict[str, str]:
        """The headers of a request that reads it."""
        stated = {
            "x-sluice-user": self.user,
            "x-sluice-session": self.session,
            "x-sluice-task": self.task,
            "x-sluice-sensitivity": self.level,
        }
        return {name: value for name, value in stated.items() if value is not None}


def asked(draw: Random) -> Asked:
    return Asked(
        draw.choice(list(AGENTS)),
        draw.choice(CRM),
        draw.choice(SENSITIVITIES),
        draw.choice(["ann@example.com", "bob"]),
        f"s-{draw.randrange(30)}" if draw.random() < 0.3 else None,
        draw.choice(TASKS) if draw.random() < 0.5 else None,
    )


def policies(draw: Random, role: str) -> list[Policy]:
    def some(pool: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(draw.sample(pool, draw.randint(0, most)))

    return [
        Policy(
            f"pol_{role}{number}",
            number + 1,
            f"{role}-{number}",
            role,
            some(PATTERNS, 4),
            some(PATTERNS, 1),
            draw.choice(SENSITIVITIES),
            some(TASKS, 2) if draw.random() < 0.3 else (),
            some(TASKS, 1) if draw.random() < 0.2 else (),
            None,
            some(tuple(AGENTS), 2) if draw.random() < 0.2 else (),
        )
        for number in range(draw.randint(0, 3))
    ]


def documents(draw: Random) -> Mapping[str, bytes | None]:
    drawn = {role: policies(draw, role) for role in (ROLE, "clerk", "teller")}
    # Something is allowed, whatever is drawn.
    drawn[ROLE].append(Policy("pol_open", 1, "open", ROLE, ("rates",), (), "high"))
    made: dict[str, bytes | None] = {
        role_name(role): role_document(each) for role, each in drawn.items()
    }
    for agent, role in AGENTS.items():
        status: AgentStatus = "suspended" if agent == "agt_suspended" else "approved"
        if agent != "agt_unknown":
            made[agent_name(agent)] = agent_document(Agent(agent, status, (role,)))
        key = Key(f"key_{agent}", "evaluate", agent, (role,))
        made[key_name(key_digest(KEYS[agent]))] = key_document(key)
    return made


BY_WAY = "sluice_decisions_by_way_total"
COUNTED_AS = {
    "api": "evaluate_context",
    "batch": "evaluate_batch",
    "authzen": "authzen",
    "authzen batch": "authzen_batch",
    "edge": "envoy_http",
    "nginx": "forward_auth",
    "ingress": "forward_auth",
    "mesh": "envoy_grpc",
    "rest": "proxy",
}
Call = Callable[..., Awaitable[Answer]]
Ask = Callable[[Asked], Awaitable[bool]]
"""Asks, and returns whether the answer lets the agent read."""


class SidecarWithEveryDoor:
    """A sidecar with a door of each kind."""

    def __init__(self, running: RunningSidecar, channel: grpc.aio.Channel) -> None:
        self.running = running
        self.call: Call = running.call
        """How its own port is called."""
        self._channel = channel
        self._seen = 0
        self._metrics: dict[str, float] = {}
        self.ways: dict[str, Ask] = {
            "api": self._evaluate,
            "batch": self._batch,
            "authzen": self._authzen,
            "authzen batch": self._authzen_batch,
            "edge": self._envoy_http,
            "nginx": self._forward_auth,
            "ingress": self._original,
            "mesh": self._grpc,
            "rest": self._proxied,
        }

    async def outcome(self, way: str, case: Asked) -> tuple[bool, Any, dict[str, float]]:
        """Whether the answer lets the agent read, what was recorded of it, and what was counted."""
        passed = await self.ways[way](case)
        payloads = await self.running.payloads()
        new, self._seen = payloads[self._seen :], len(payloads)
        [payload] = [each for each in new if each["core"]["kind"] == "decision"]
        recorded = payload["core"]["pub"]
        source_type = recorded["request"].pop("source_type")
        assert source_type == way.partition(" ")[0].replace("batch", "api")
        recorded.pop("context_hash")  # of a random salt
        recorded["hidden"] = {name: opening[1] for name, opening in payload["open"].items()}
        assert case.user in recorded["hidden"].values()
        counted = await self._counted()
        decision = recorded["response"]["decision"]
        # The one metric that tells the ways apart.
        assert counted.pop(f'{BY_WAY}{{decision="{decision}",way="{COUNTED_AS[way]}"}}') == 1
        return passed, recorded, counted

    async def _counted(self) -> dict[str, float]:
        """By how much each decision's metric has grown."""
        text = (await self.running.call("GET", "/metrics", key=None)).text()
        found = re.findall(
            r"^(sluice_(?:decisions\w*_total|evaluate\w*_count)\S*) (\S+)$", text, re.M
        )
        now = {name: float(value) for name, value in found}
        grown = {name: value - self._metrics.get(name, 0) for name, value in now.items()}
        self._metrics = now
        return {name: value for name, value in grown.items() if value}

    async def _post(self, path: str, case: Asked, body: Any) -> Any:
        key = KEYS[case.agent]
        sent = await self.call("POST", path, orjson.dumps(body), key=key)
        assert sent.status == 200, sent.body
        return sent.json()

    def _body(self, case: Asked) -> dict[str, Any]:
        return {
            "agent_role": case.role,
            "agent_id": case.agent,
            "user_id": case.user,
            "source_id": case.source,
            "sensitivity_level": case.level,
            "session_id": case.session,
            "task_type": case.task,
        }

    async def _evaluate(self, case: Asked) -> bool:
        decided = await self._post(EVALUATE, case, self._body(case))
        return bool(decided["decision"] == "ALLOW")

    async def _batch(self, case: Asked) -> bool:
        body = {"items": [self._body(case)]}
        [decided] = (await self._post(f"{EVALUATE}/batch", case, body))["results"]
        return bool(decided["decision"] == "ALLOW")

    def _question(self, case: Asked) -> dict[str, Any]:
        context = {"user_id": case.user, "session_id": case.session, "task_type": case.task}
        return {
            "subject": {"type": "agent", "id": case.agent, "properties": {"role": case.role}},
            "action": {"name": "read"},
            "resource": {
                "type": "source",
                "id": case.source,
                "properties": {"sensitivity_level": case.level},
            },
            "context": {name: value for name, value in context.items() if value is not None},
        }

    async def _authzen(self, case: Asked) -> bool:
        decided = await self._post("/access/v1/evaluation", case, self._question(case))
        return decided["decision"] is True

    async def _authzen_batch(self, case: Asked) -> bool:
        body = {"evaluations": [self._question(case)]}
        [decided] = (await self._post("/access/v1/evaluations", case, body))["evaluations"]
        return decided["decision"] is True

    async def _envoy_http(self, case: Asked) -> bool:
        return await self._check(f"edge/{case.source}", case, {})

    async def _forward_auth(self, case: Asked) -> bool:
        original = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": f"/{case.source}"}
        return await self._check("nginx", case, original)

    async def _original(self, case: Asked) -> bool:
        original = {"X-Original-Method": "GET", "X-Original-URI": f"/{case.source}"}
        return await self._check("ingress", case, original)

    async def _check(self, path: str, case: Asked, original: dict[str, str]) -> bool:
        answered = await self.call(
            "GET",
            f"/v1/check/{path}",
            key=KEYS[case.agent],
            headers={**case.fields, **original},
        )
        assert answered.status in (200, 403)
        assert answered.headers["X-Sluice-Decision"] in ("ALLOW", "DENY")
        return answered.status == 200

    async def _grpc(self, case: Asked) -> bool:
        request = message("CheckRequest")()
        http = request.attributes.request.http
        http.method, http.path, http.host, http.size = "GET", f"/{case.source}", "crm.test", -1
        http.headers.update(case.fields)
        called: Any = self._channel.unary_unary(CHECK)
        metadata = [("x-api-key", KEYS[case.agent])]
        told = await called(request.SerializeToString(), metadata=metadata, timeout=20)
        return bool(message("CheckResponse").FromString(told).status.code == 0)

    async def _proxied(self, case: Asked) -> bool:
        [proxy] = [each for each in self.running.parts.listeners if isinstance(each, Proxy)]
        lines = "".join(f"{name}: {value}\r\n" for name, value in case.fields.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port("crm"))
        try:
            head = f"GET /{case.source} HTTP/1.1\r\nHost: crm.test\r\nConnection: close\r\n"
            writer.write(f"{head}{lines}\r\n".encode())
            async with asyncio.timeout(20):
                status = (await reader.read()).split(b" ")[1]
        finally:
            writer.close()
        assert status in (b"200", b"403")
        return status == b"200"


@asynccontextmanager
async def over_http_2(running: RunningSidecar) -> AsyncIterator[Call]:
    """Call the sidecar's own port as `RunningSidecar.call` does, on one connection of HTTP/2."""
    where = running.address
    reader, writer = await asyncio.open_connection(where.host, where.port)
    client = Http2Client(reader, writer)

    async def call(
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = {
            "x-api-key": key,
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        if body is not None:
            sent["content-type"] = "application/json"
        got = await client.ask(path, *sent.items(), method=method, body=body, host=str(where))
        assert got.reset is None
        fields = [(name.decode(), value.decode()) for name, value in got.fields.items()]
        return Answer(got.status, CIMultiDictProxy(CIMultiDict(fields)), got.body)

    try:
        yield call
    finally:
        writer.close()


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[tuple[SidecarWithEveryDoor, Any]]:
    async with fake_control_api() as control, data_source(answer()) as upstream:
        control.create_tenant()
        crm = Source(
            "crm",
            "rest",
            f"http://127.0.0.1:{upstream.port}",
            LOCAL,
            "low",
            routes=(RestRule("GET", "/{name}", "retrieve", "{name}"),),
        )
        doors = (
            Door("edge", "envoy_http", "crm"),
            Door("nginx", "forward_auth", "crm"),
            Door("ingress", "forward_auth", "crm", request_from="original"),
            Door("mesh", "envoy_grpc", "crm", LOCAL),
        )
        async with running_sidecar(
            tmp_path, control, sources=(crm,), doors=doors, authzen=AuthzenSettings()
        ) as running:
            [mesh] = running.parts.doors.listeners
            async with grpc.aio.insecure_channel(str(mesh.address)) as channel:
                yield SidecarWithEveryDoor(running, channel), control


@pytest.mark.parametrize("seed", range(few(10)))
async def test_every_door_gives_the_same_decision_record_and_metrics(
    tmp_path: Path, seed: int
) -> None:
    draw, answers = Random(seed), set()
    async with world(tmp_path) as (made, control):
        await made.running.follows(control.publish(documents(draw)))
        for _ in range(40):
            case = asked(draw)
            # The first of all claims the session, if there is one.
            first = await made.outcome("api", case)
            ways = [way for way in made.ways if way != "api"]
            draw.shuffle(ways)
            for way in ways:
                # All that arrives at the proxy's port is the sidecar's own agent's.
                if way != "rest" or case.agent == AGENT:
                    assert await made.outcome(way, case) == first, (way, case)
            answers.add(first[0])
    assert answers == {True, False}


@pytest.mark.deep(stands_in="test_every_door_gives_the_same_decision_record_and_metrics")
async def test_every_door_of_the_sidecar_s_own_port_answers_over_http_2_as_over_http_1(
    tmp_path: Path,
) -> None:
    draw, answers = Random(1), set()
    async with world(tmp_path) as (made, control), over_http_2(made.running) as call:
        await made.running.follows(control.publish(documents(draw)))
        for _ in range(20):
            case = asked(draw)
            made.call = made.running.call
            first = await made.outcome("api", case)
            made.call = call
            for way in made.ways:
                if way not in ("mesh", "rest"):
                    assert await made.outcome(way, case) == first, (way, case)
            answers.add(first[0])
    assert answers == {True, False}
