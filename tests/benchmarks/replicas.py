"""Two control API processes on one PostgreSQL, without Redis: how soon a policy that was replaced
at one is in force at the other, and in the sidecars that poll the other.

    python -m tests.benchmarks.replicas [SIDECARS [WRITES]] [--without-notices]

The time runs from the answer to the write. The other replica shows a change by its answer to a long
poll, a sidecar by what it decides. What asks takes from the same cores. With `--without-notices`,
PostgreSQL's notices don't arrive, and changes are found by looking for them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from control_api.store.migrate import migrate
from tests.benchmarks import fleet
from tests.benchmarks.measure import directory
from tests.benchmarks.postgresql import server
from tests.support import postgres
from tests.support.ports import free_port
from tests.support.stack import Service, Stack

SIDECARS, WRITES = 10, 200
TARGET = 50.0
"""Milliseconds."""
PAUSE = 0.01
"""Seconds between two questions to a sidecar: they are in the figures."""


@contextmanager
def started(folder: Path, url: str, *, deaf: bool) -> Iterator[tuple[Stack, Service]]:
    """A stack without a sidecar, and a second control API of the same installation."""
    stack = Stack(folder / "stack", database_url=url, mode="best_effort")
    if deaf:
        elsewhere = url.rpartition("/")[0] + "/postgres"
        stack.control.environ["SLUICE_LISTEN_DATABASE_URL"] = elsewhere
    stack.start_control()
    stack.prepare()
    data, port = folder / "data", free_port()
    data.mkdir(mode=0o700)
    shutil.copy(stack.directory / "data" / "log.key", data)
    changed = {"SLUICE_DATA_DIR": str(data), "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}"}
    environ = {**stack.control.environ, **changed}
    other = Service("the other", stack.control.command, environ, folder / "other.log", port)
    try:
        other.start()
        yield stack, other
    finally:
        other.stop()
        stack.stop()


class Measuring:
    """Replaces a policy at the stack's replica, and watches the other and its sidecars."""

    def __init__(
        self, stack: Stack, other: Service, sidecars: list[Service], session: aiohttp.ClientSession
    ) -> None:
        self.at_replica: list[float] = []
        self.at_sidecars: list[float] = []
        """Milliseconds from the answer to a write until the change was in force."""
        self._stack = stack
        self._feed = f"http://127.0.0.1:{other.port}/v1/sidecars/policy-set"
        self._ports = [each.port for each in sidecars]
        self._session = session

    async def run(self, writes: int) -> None:
        (policy,) = self._stack.admin("GET", "/v1/policies")
        kept = ("name", "agent_role", "denied_sources", "max_sensitivity")
        body = {name: policy[name] for name in kept}
        held, _ = await self._page({}, 0)
        for turn in range(writes):
            waiting = asyncio.ensure_future(self._page(held, 25))
            await asyncio.sleep(0.3 + 0.5 * (turn % 13) / 13)  # in no step with half a second
            sources = ["handbook"] if turn % 2 else ["contracts"]
            await self._replace(policy["policy_id"], {**body, "allowed_sources": sources})
            began, expected = time.perf_counter(), "ALLOW" if turn % 2 else "DENY"
            async with asyncio.TaskGroup() as group:
                for port in self._ports:
                    group.create_task(self._decided(port, expected, began))
            held, shown = await waiting
            self.at_replica.append(1000 * max(0.0, shown - began))

    async def _replace(self, policy_id: str, body: dict[str, Any]) -> None:
        url = f"http://127.0.0.1:{self._stack.control.port}/v1/policies/{policy_id}"
        headers = {"X-API-Key": self._stack.admin_key}
        async with self._session.put(url, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    async def _page(self, held: dict[str, Any], wait: int) -> tuple[dict[str, Any], float]:
        """What follows the page that is held, and when it came."""
        query = {"since": held.get("revision", 0), "epoch": held.get("epoch", ""), "wait": wait}
        headers = {"X-API-Key": self._stack.sidecar_key}
        async with self._session.get(self._feed, params=query, headers=headers) as answer:
            return await answer.json(), time.perf_counter()

    async def _decided(self, port: int, expected: str, began: float) -> None:
        asked, headers = self._stack.ask(), {"X-API-Key": self._stack.agent_key}
        url = f"http://127.0.0.1:{port}/v1/context/evaluate"
        while True:
            async with self._session.post(url, json=asked, headers=headers) as answer:
                said: Any = await answer.json()
            if said.get("decision") == expected:
                self.at_sidecars.append(1000 * (time.perf_counter() - began))
                return
            assert time.perf_counter() - began < 30, said
            await asyncio.sleep(PAUSE)


async def measure(stack: Stack, other: Service, sidecars: list[Service], writes: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        measuring = Measuring(stack, other, sidecars, session)
        await measuring.run(writes)
    told(f"written here → in force at the other replica, {writes} writes", measuring.at_replica)
    if sidecars:
        told(f"written here → in force in its {len(sidecars)} sidecars", measuring.at_sidecars)


def told(what: str, taken: list[float]) -> None:
    late = statistics.quantiles(taken, n=100)[98]
    print(
        f"{what}: p50 {statistics.median(taken):.1f} ms, p99 {late:.1f} ms, longest "
        f"{max(taken):.1f} ms; p99 / {TARGET:.0f} ms = {late / TARGET:.2f}",
        flush=True,
    )


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    sidecars, writes = (numbers + [SIDECARS, WRITES][len(numbers) :])[:2]
    deaf = "--without-notices" in sys.argv
    with server() as database, directory() as folder, database.database() as url:
        serving = postgres.serving(url)
        asyncio.run(migrate(url, serving))
        with started(folder, serving, deaf=deaf) as (stack, other):
            of_first, of_other = (f"127.0.0.1:{each.port}" for each in (stack.control, other))
            config = stack.directory / "sidecar.yaml"
            config.write_text(config.read_text().replace(of_first, of_other))
            all_of_them = [fleet.another(stack, number) for number in range(sidecars)]
            try:
                for each in all_of_them:
                    each.start(ready=False)
                for each in all_of_them:
                    each.wait_ready()
                print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
                asyncio.run(measure(stack, other, all_of_them, writes))
            finally:
                for each in all_of_them:
                    if each.process is not None:
                        each.kill()


if __name__ == "__main__":
    main()
