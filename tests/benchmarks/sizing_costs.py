"""What each thing that a fleet does costs the control API, PostgreSQL and Redis: the inputs of
`sizing`.

    python -m tests.benchmarks.sizing_costs

One control API process, a PostgreSQL with `fsync` on and a Redis, all real. CPU time is the
processes' own, so other work on the machine changes it little. About three minutes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import asyncpg
import redis.asyncio as redis_py

from control_api.store.migrate import migrate
from policies.sets.redis_keys import CHALLENGES, beats_key
from tests.benchmarks.ingest import cpu
from tests.benchmarks.ingest_sender import PATH, Records
from tests.benchmarks.postgresql import server
from tests.support import postgres
from tests.support.redis import running_redis
from tests.support.stack import Stack, call

AT_ONCE = 16
READERS = 200
IDLE = 500
IDLE_SECONDS = 10.0
TICK = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """Seconds of CPU, bytes of WAL, and bytes that Redis sent."""

    control: float
    postgresql: float
    redis: float
    wal: float
    sent: float


class Meter:
    """Reads what the three have used so far."""

    def __init__(self, stack: Stack, backend: int, database: Any, server: Any) -> None:
        self._stack, self._database, self._server = stack, database, server
        self._idle = Used(0, 0, 0, 0, 0)
        self._postmaster = int(_stat(backend)[1])

    async def read(self) -> Used:
        position = await self._database.fetchval(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
        )
        told = await self._server.info()
        ticks = sum(map(int, _stat(self._postmaster)[11:15]))
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text()
        ticks += sum(sum(map(int, _stat(int(child))[11:13])) for child in children.split())
        used = told["used_cpu_sys"] + told["used_cpu_user"]
        sent = told["total_net_output_bytes"]
        return Used(cpu(self._stack.control), ticks / TICK, used, position, sent)

    async def rest(self) -> None:
        """Measure what is used while nothing is asked, which does not count from now on."""
        self._idle = Used(0, 0, 0, 0, 0)
        used = await self.of(asyncio.sleep(IDLE_SECONDS))
        self._idle = Used(*(each / IDLE_SECONDS for each in used))
        show("nothing, a second", self._idle, 1)

    async def of(self, work: Awaitable[object]) -> Used:
        before, began = await self.read(), time.monotonic()
        await work
        took = time.monotonic() - began
        used = (b - a for a, b in zip(before, await self.read(), strict=True))
        return Used(*(all_ - idle * took for all_, idle in zip(used, self._idle, strict=True)))


def _stat(process: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on: 1 is the parent, 11 to 14 are CPU times."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


async def at_once(jobs: list[Callable[[], Awaitable[None]]], workers: int = AT_ONCE) -> None:
    """Does all jobs, some at a time, in order."""
    left = iter(jobs)

    async def work() -> None:
        for job in left:
            await job()

    await asyncio.gather(*(work() for _ in range(workers)))


class Fleet:
    """Sidecars' requests."""

    def __init__(self, stack: Stack, session: aiohttp.ClientSession) -> None:
        self._stack, self._session = stack, session
        self._spools = 0
        self._url = f"http://127.0.0.1:{stack.control.port}"
        self._key = {"X-API-Key": stack.sidecar_key, "Content-Type": "application/json"}

    async def post(self, path: str, body: Any) -> None:
        sent = body if isinstance(body, bytes) else aiohttp.JsonPayload(body)
        async with self._session.post(self._url + path, data=sent, headers=self._key) as answer:
            assert answer.status == 200, await answer.text()

    async def reports(self, many: int) -> None:
        def job(number: int) -> Callable[[], Awaitable[None]]:
            status = {
                "sidecar_id": f"sidecar-{number % 500}",
                "run_id": "r1",
                "version": "1.0.0",
                "epoch": "e",
                "revision": number,
                "spool_depth": 0,
            }
            return lambda: self.post("/v1/sidecars/report", status)

        await at_once([job(number) for number in range(many)])

    async def batches(self, many: int, size: int) -> None:
        async def spool(source: str) -> None:
            records = Records(source)
            for _ in range(many // AT_ONCE):
                await self.post(PATH, records.batch(size)[0])

        self._spools += AT_ONCE
        await asyncio.gather(*(spool(f"of-{self._spools - n}") for n in range(AT_ONCE)))

    async def polls(self, many: int) -> None:
        async with self._session.get(
            f"{self._url}/v1/sidecars/policy-set?since=0", headers=self._key
        ) as answer:
            page = await answer.json()
        path = f"/v1/sidecars/policy-set?since={page['revision']}&epoch={page['epoch']}&wait=1"

        async def poll() -> None:
            async with self._session.get(self._url + path, headers=self._key) as answer:
                assert answer.status == 200, await answer.text()

        await at_once([poll] * many, 100)

    async def changes(self, many: int) -> None:
        for number in range(many):
            body = {"name": f"k{number}", "scope": "evaluate"}
            path, key = "/v1/keys", self._stack.admin_key
            assert call(self._stack.control.port, "POST", path, body, key=key)[0] == 201


async def challenges(client: Any, rounds: int, each: int) -> None:
    """Challenges in groups that the control API answers together."""
    for turn in range(rounds):
        pipe = client.pipeline(transaction=False)
        for number in range(each):
            pipe.xadd(CHALLENGES, {"t": "default", "n": f"of-{each:03}-{turn:05}-{number:04}"})
        await pipe.execute()
        await asyncio.sleep(0.3 if each > 1 else 0.05)


async def listen(client: Any, over: asyncio.Event) -> None:
    last = "$"
    while not over.is_set():
        for _, entries in await client.xread({beats_key("default"): last}, block=2000) or []:
            last = entries[-1][0]


def show(what: str, used: Used, many: int) -> None:
    micros = (f"{seconds / many * 1e6:,.0f}" for seconds in used[:3])
    rest = f"WAL {used.wal / many:,.0f} B, Redis sent {used.sent / many:,.0f} B"
    print(f"{what:<34} CPU µs: {', '.join(micros)} (API, PostgreSQL, Redis); {rest}", flush=True)


async def measure(stack: Stack, url: str, server_port: int) -> None:
    database = await asyncpg.connect(postgres.unbound(url).replace("+asyncpg", ""))
    clients = [redis_py.Redis(port=server_port, protocol=2) for _ in range(READERS + 1)]
    root, readers = clients[0], clients[1:]
    meter = Meter(stack, await database.fetchval("SELECT pg_backend_pid()"), database, root)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        fleet = Fleet(stack, session)
        await fleet.reports(500)
        await fleet.batches(160, 1)
        await challenges(root, 3, 10)
        await meter.rest()
        show("a status report", await meter.of(fleet.reports(2000)), 2000)
        show("a batch of 1 record", await meter.of(fleet.batches(1600, 1)), 1600)
        show("a batch of 64 records", await meter.of(fleet.batches(320, 64)), 320)
        show("a long poll", await meter.of(fleet.polls(1000)), 1000)
        show("a change (a key made)", await meter.of(fleet.changes(200)), 200)
        show("a round of 1 challenge", await meter.of(challenges(root, 100, 1)), 100)
        show("a round of 400 challenges", await meter.of(challenges(root, 30, 400)), 30)
        before, over = (await root.info("memory"))["used_memory"], asyncio.Event()
        listening = [asyncio.ensure_future(listen(each, over)) for each in readers]
        await asyncio.sleep(1)
        held = (await root.info("memory"))["used_memory"] - before
        await meter.rest()
        show(f"a round of 1, {READERS} readers", await meter.of(challenges(root, 100, 1)), 100)
        show(f"a round of 400, {READERS} readers", await meter.of(challenges(root, 30, 400)), 30)
        over.set()
        await asyncio.gather(*listening)
        print(f"a waiting reader in Redis: {held / READERS:,.0f} B")
    idle = stack.control.resident()
    open_ones = [
        await asyncio.open_connection("127.0.0.1", stack.control.port) for _ in range(IDLE)
    ]
    for _, writer in open_ones:
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    for reader, _ in open_ones:
        await reader.read(1024)
    print(f"an idle connection of the API: {(stack.control.resident() - idle) / IDLE:,.0f} B")
    for _, writer in open_ones:
        writer.close()
    for client in clients:
        await client.aclose()
    await database.close()


@contextmanager
def started(folder: Path) -> Iterator[tuple[Stack, str, int]]:
    with (
        running_redis(folder / "redis") as store,
        server() as database,
        database.database() as url,
    ):
        asyncio.run(migrate(url, postgres.serving(url)))
        stack = Stack(folder / "stack", database_url=postgres.serving(url), redis_url=store.url)
        try:
            stack.start_control()
            stack.prepare()
            yield stack, url, store.port
        finally:
            stack.control.stop()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as made, started(Path(made)) as parts:
        asyncio.run(measure(*parts))


if __name__ == "__main__":
    main()
