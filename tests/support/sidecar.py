"""A whole sidecar in this process, with a `FakeControlApi`, and a clock and a disk to fake."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import orjson
from aiohttp import ClientSession
from multidict import CIMultiDictProxy

from policies.definitions.model import Key
from policies.ground.addresses import ListenAddress, RedisUrl
from policies.ground.clock import Clock
from policies.ground.keys import key_digest
from policies.retrieval import Retrieval
from policies.trail.spool_chain import read_payload
from sidecar.api.http_server import HttpServer
from sidecar.assembly import Components
from sidecar.control.clock import ControlClock
from sidecar.live_keys import LiveKeys
from sidecar.recorder import RecordedDecision
from sidecar.settings.model import AgentSettings, SidecarSettings, UpstreamTls
from sidecar.spool import Spool, SpoolSettings
from sidecar.spool.storage.disk import Disk
from sidecar.spool.writing.maintenance import QUIET_SECONDS
from tests.support.fake_control_api import AGENT, EVALUATE_KEY, ROLE, SIDECAR_KEY
from tests.support.waiting import until_async

EVALUATE = "/v1/context/evaluate"


class ControlApiPlace(Protocol):
    """The address and keys of a control API, real or not."""

    @property
    def address(self) -> str: ...

    @property
    def redis_url(self) -> RedisUrl | None: ...


class FakeClock:
    """The real time, moved by the test."""

    def __init__(self) -> None:
        self.ahead = 0.0
        """The seconds that both clocks are ahead."""
        self.wall_ahead = 0.0
        """The seconds that the wall clock alone is ahead."""
        self.clock = Clock(self._now, self._monotonic)

    def _now(self) -> int:
        return time.time_ns() // 1000 + int((self.ahead + self.wall_ahead) * 1e6)

    def _monotonic(self) -> float:
        return time.monotonic() + self.ahead


def ask(**changed: Any) -> dict[str, Any]:
    """Return an evaluation's body, allowed unless changed."""
    body = {
        "agent_role": ROLE,
        "agent_id": AGENT,
        "user_id": "ann@example.com",
        "source_id": "contracts",
        "sensitivity_level": "high",
    }
    return {name: value for name, value in {**body, **changed}.items() if value is not None}


def retrieval(**changed: Any) -> Retrieval:
    """Return the retrieval that `ask` asks for."""
    return Retrieval(**ask(**changed))


class FaultyDisk(Disk):
    """The real disk, until the test makes it fail or hang."""

    def __init__(self) -> None:
        self.fails = False
        self.hangs = Event()
        self.hangs.set()

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        self._fault()
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        self._fault()
        super().sync(descriptor)

    def _fault(self) -> None:
        self.hangs.wait(20)
        if self.fails:
            raise OSError(errno.EIO, "the test made it fail")


@dataclass(frozen=True)
class Answer:
    """One response, read to its end."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    def text(self) -> str:
        return self.body.decode()


class RunningSidecar:
    """A running sidecar."""

    def __init__(
        self,
        parts: Components,
        spool: Spool,
        clock: FakeClock,
        session: ClientSession,
        stop: asyncio.Event,
    ) -> None:
        self.parts = parts
        self.spool = spool
        self.clock = clock
        self.stop = stop
        self._session = session
        own = [each for each in parts.listeners if each not in parts.doors.listeners]
        self.ports = [each for each in own if isinstance(each, HttpServer)]
        self.address = self.ports[0].address

    def agent_key(self) -> Key | None:
        """Return the agent's key, as this sidecar knows it."""
        keys = LiveKeys(self.parts.policies.policy_set, self.clock.clock)
        return keys.find(key_digest(EVALUATE_KEY))

    async def decide(self, retrieval: Retrieval, key: Key | None) -> RecordedDecision:
        """Decide by the enforcer itself, and wait for the record."""
        [recorded] = await self.parts.enforcer.decide((retrieval,), key)
        await recorded.durable
        return recorded

    async def evaluate(self, key: str = EVALUATE_KEY, **changed: Any) -> dict[str, Any]:
        """Return the response's body; its status must be 200."""
        answer = await self.call("POST", EVALUATE, orjson.dumps(ask(**changed)), key=key)
        body = answer.json()
        assert answer.status == 200, body
        return dict(body)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = EVALUATE_KEY,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = {} if key is None else {"X-API-Key": key}
        if body is not None:
            sent["Content-Type"] = "application/json"
        url = f"http://{self.address}{path}"
        async with self._session.request(
            method, url, data=body, headers={**sent, **(headers or {})}
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def follows(self, revision: int) -> None:
        """Return once the sidecar has this revision of the policy set."""
        policy_set = self.parts.policies.policy_set
        await until_async("the sidecar follows", lambda: policy_set.revision >= revision)

    async def problems(self) -> dict[str, str]:
        """Return the problems that `/health/ready` reports."""
        answer = await self.call("GET", "/health/ready", key=None)
        if answer.status == 200:
            return {}
        assert answer.status == 503
        lines: list[str] = answer.json()["details"].splitlines()
        return dict(line.split(": ", 1) for line in lines)

    async def metric(self, sample: str) -> float:
        """Return the value of a line of `/metrics`, given its `name{labels}`."""
        text = (await self.call("GET", "/metrics", key=None)).text()
        for line in text.splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        raise AssertionError(f"no {sample} in:\n{text}")

    async def records(self) -> list[dict[str, Any]]:
        """Return the records in the spool, read back from disk."""
        return [read_payload(payload).core for payload in await self.payloads()]

    async def payloads(self) -> list[dict[str, Any]]:
        """Return the content of the spool: each record as `core`, with the openings of its hidden
        values."""
        await until_async("everything is on disk", lambda: not self.spool.bytes_waiting)
        batch = await self.spool.batch(1 << 30, 1 << 20)
        return [] if batch is None else [orjson.loads(payload) for payload in batch.payloads]

    async def responses(self) -> list[dict[str, Any]]:
        """Return `pub.response` of each decision in the spool."""
        return [r["pub"]["response"] for r in await self.records() if r["kind"] == "decision"]


def settings(tmp_path: Path, control: ControlApiPlace, **changed: Any) -> SidecarSettings:
    """Return the settings of a sidecar of `control`, on a port that the system chooses."""
    for name, key in (("sidecar.key", SIDECAR_KEY), ("agent.key", EVALUATE_KEY)):
        (tmp_path / name).write_text(key)
    whole: dict[str, Any] = {
        "id": "sidecar-1",
        "control": control.address,
        "control_tls": UpstreamTls(),
        "redis": control.redis_url,
        "compress": "auto",
        "key_file": tmp_path / "sidecar.key",
        "listen": ListenAddress("127.0.0.1", 0),
        "metrics_listen": None,
        "cache": tmp_path / "cache",
        "staleness_seconds": 30.0,
        "drain_seconds": 5.0,
        "spool": SpoolSettings(tmp_path / "spool", segment_bytes=1024 * 1024),
        "agent": AgentSettings(AGENT, ROLE, tmp_path / "agent.key"),
        "sources": (),
        "hosts": ("a", "gateway", "kb", "crm.test", "x"),  # as raw requests of the tests call it
    }
    return SidecarSettings(**{**whole, **changed})


@asynccontextmanager
async def running_sidecar(
    tmp_path: Path,
    control: ControlApiPlace,
    *,
    disk: Disk | None = None,
    clock: FakeClock | None = None,
    synced: bool = True,
    ships: bool = False,
    quiet_seconds: float = QUIET_SECONDS,
    **changed: Any,
) -> AsyncIterator[RunningSidecar]:
    """Start a sidecar of `control`, ready to decide if `synced`. With `ships`, records leave the
    spool."""
    clock = clock or FakeClock()
    configured = settings(tmp_path, control, **changed)
    control_clock = ControlClock(clock.clock)
    spool = await Spool.open(
        configured.spool, configured.id, control_clock.clock, os.urandom, disk, quiet_seconds
    )
    stop = asyncio.Event()
    parts = Components(configured, spool, control_clock, os.urandom, stop.set)
    loops = [
        spool.run(),
        parts.follower.run(),
        parts.enforcer.candidate_roles.run(),
        *([parts.shipper.run()] if ships else []),
    ]
    async with parts.control, ClientSession() as session:
        running = [asyncio.create_task(loop) for loop in loops]
        try:
            for listener in parts.listeners:
                await listener.start()
            started = RunningSidecar(parts, spool, clock, session, stop)
            if synced:
                # Some tests give the agent no key, and ask with another.
                await until_async(
                    "the policy set is there",
                    lambda: {*parts.readiness.problems()} <= {"agent_key"},
                )
            yield started
        finally:
            for listener in parts.listeners:
                await listener.close(0)
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await spool.close(5)
            await parts.replica.close()
            parts.close()
