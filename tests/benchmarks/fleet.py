"""Fifty sidecars and one large tenant, by way of Redis.

    propagation   how long after a policy write, or a key's revocation, was answered each of fifty
                  sidecars decides by it, over 200 of each; asked by evaluating
    large         a sidecar of a tenant with 50,000 policies, 100,000 agents and 100,000 keys: its
                  memory, how soon it is ready, what the first decision of a role costs and the next

    python -m tests.benchmarks.fleet [propagation | large] [--quick]

Real processes, a real Redis, SQLite behind the control API: what is measured begins at its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.definitions.model import Agent, Key, Policy
from policies.ground.clock import Clock
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
)
from tests.support import redis
from tests.support.ports import free_port
from tests.support.redis import running_redis
from tests.support.stack import Service, Stack

SIDECARS, WRITES = 50, 200
POLICIES, AGENTS, KEYS = 50_000, 100_000, 100_000
CHUNK = 5_000


def main() -> None:
    quick = "--quick" in sys.argv
    asked = [word for word in sys.argv[1:] if not word.startswith("-")]
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as made:
        if not asked or "propagation" in asked:
            asyncio.run(
                propagation(Path(made) / "many", *((5, 20) if quick else (SIDECARS, WRITES)))
            )
        if not asked or "large" in asked:
            asyncio.run(large(Path(made) / "large", 100 if quick else 1))


@contextmanager
def started(folder: Path) -> Iterator[tuple[Stack, redis.Redis]]:
    """A control API with Redis, and what a sidecar needs; no sidecar yet."""
    with running_redis(folder / "redis") as server:
        stack = Stack(folder / "stack", redis_url=server.url, mode="best_effort")
        stack.start_control()
        stack.prepare()
        try:
            yield stack, server
        finally:
            stack.stop()


def quiet_port(number: int) -> int:
    """A port below the ephemeral range, of which the thousands of connections here take many."""
    for port in range(20_000 + number * 20, 20_020 + number * 20):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    return free_port()


def another(stack: Stack, number: int) -> Service:
    """A sidecar beside the stack's, with its own files."""
    folder = stack.directory / f"sidecar-{number}"
    folder.mkdir()
    port = quiet_port(number)
    text = (stack.directory / "sidecar.yaml").read_text()
    text = text.replace(f"127.0.0.1:{stack.sidecar.port}", f"127.0.0.1:{port}")
    text = text.replace("id: sidecar-1", f"id: sidecar-{number}")
    for name in ("sidecar.key", "agent.key"):
        (folder / name).write_text((stack.directory / name).read_text())
    (folder / "sidecar.yaml").write_text(text)
    command = [sys.executable, "-m", "sidecar", "--config", str(folder / "sidecar.yaml")]
    return Service(f"sidecar-{number}", command, {}, folder / "log", port)


async def propagation(folder: Path, sidecars: int, writes: int) -> None:
    with started(folder) as (stack, _):
        fleet = [another(stack, number) for number in range(sidecars)]
        try:
            for each in fleet:
                each.start(ready=False)
            for each in fleet:
                await asyncio.to_thread(each.wait_ready)
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                measuring = Measuring(stack, [each.port for each in fleet], session)
                told("policy write → in force", await measuring.policies(writes), sidecars)
                told("key revocation → refused", await measuring.revocations(writes), sidecars)
        finally:
            for each in fleet:
                if each.process is not None:
                    each.kill()


class Measuring:
    """Ask every sidecar until it decides as expected."""

    def __init__(self, stack: Stack, ports: list[int], session: aiohttp.ClientSession) -> None:
        self._stack = stack
        self._ports = ports
        self._session = session

    async def policies(self, writes: int) -> list[float]:
        (policy,) = self._stack.admin("GET", "/v1/policies")
        path = f"/v1/policies/{policy['policy_id']}"
        body = {
            name: policy[name]
            for name in ("name", "agent_role", "denied_sources", "max_sensitivity")
        }
        taken: list[float] = []
        for turn in range(writes):
            sources = ["handbook"] if turn % 2 else ["contracts"]
            await self._admin("PUT", path, {**body, "allowed_sources": sources})
            expected = "ALLOW" if turn % 2 else "DENY"
            taken += await self._until(self._stack.agent_key, (200, expected))
        return taken

    async def revocations(self, writes: int) -> list[float]:
        taken: list[float] = []
        for turn in range(writes):
            made = await self._admin("POST", "/v1/keys", {"name": f"k{turn}", "scope": "evaluate"})
            await self._until(made["key"], (200, "ALLOW"))
            await self._admin("DELETE", f"/v1/keys/{made['key_id']}")
            taken += await self._until(made["key"], (403, ""))
        return taken

    async def _admin(self, method: str, path: str, body: object = None) -> Any:
        url = f"http://127.0.0.1:{self._stack.control.port}{path}"
        headers = {"X-API-Key": self._stack.admin_key}
        async with self._session.request(method, url, json=body, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def _until(self, key: str, expected: tuple[int, str]) -> list[float]:
        """Seconds until each sidecar decided so."""
        started = time.perf_counter()
        return list(
            await asyncio.gather(*(self._one(port, key, expected, started) for port in self._ports))
        )

    async def _one(self, port: int, key: str, expected: tuple[int, str], started: float) -> float:
        url = f"http://127.0.0.1:{port}/v1/context/evaluate"
        body, headers = self._stack.ask(), {"X-API-Key": key}
        while True:
            async with self._session.post(url, json=body, headers=headers) as answer:
                said = await answer.json()
                if (answer.status, said.get("decision", "")) == expected:
                    return time.perf_counter() - started
            assert time.perf_counter() - started < 30, said
            await asyncio.sleep(0.015)  # what asks takes from the same cores


def told(what: str, taken: list[float], sidecars: int) -> None:
    cuts = statistics.quantiles(taken, n=100)
    median, late = statistics.median(taken) * 1000, cuts[98] * 1000
    print(
        f"{what}, {sidecars} sidecars, {len(taken) // sidecars} times: p50 {median:.0f} ms, "
        f"p99 {late:.0f} ms, longest {max(taken) * 1000:.0f} ms; p99 / 100 ms = {late / 100:.2f}",
        flush=True,
    )


async def large(folder: Path, part: int) -> None:
    with started(folder) as (stack, _):
        stack.control.stop()
        keys = [make_key(os.urandom(32)) for _ in range(KEYS // part)]
        began = time.perf_counter()
        await fill(stack, keys, part)
        count = (POLICIES + AGENTS + KEYS) // part
        print(f"{count:,} documents in {time.perf_counter() - began:.0f} s")
        stack.control.start()
        began = time.perf_counter()
        stack.sidecar.start(ready=False)
        await asyncio.to_thread(stack.sidecar.wait_ready)
        waited = time.perf_counter() - began
        print(f"the first start, which may wait for Redis to be filled: {waited:.2f} s")
        stack.sidecar.stop()
        began = time.perf_counter()
        stack.sidecar.start(ready=False)
        await asyncio.to_thread(stack.sidecar.wait_ready)
        ready = time.perf_counter() - began
        first, following = await decisions(stack, keys, part)
        resident = stack.sidecar.resident() / 1024 / 1024
        print(
            f"ready after {ready:.2f} s (2 s: {ready / 2:.2f}); first decision of a role p50 "
            f"{statistics.median(first) * 1000:.2f} ms, longest {max(first) * 1000:.2f} ms "
            f"(5 ms: {statistics.median(first) * 200:.2f}); the next p50 "
            f"{statistics.median(following) * 1000:.2f} ms; resident {resident:.1f} MiB (60 MiB: "
            f"{resident / 60:.2f})"
        )


async def fill(stack: Stack, keys: list[str], part: int) -> None:
    """Write the documents through the store; no service runs."""
    documents: dict[str, bytes | None] = {}
    for n in range(POLICIES // part):
        role = f"role-{n}"
        policy = Policy(f"pol_{n}", 1, f"policy-{n}", role, ("handbook", f"source-{n}"), (), "high")
        documents[role_name(role)] = role_document([policy])
    for n in range(AGENTS // part):
        role = f"role-{n % (POLICIES // part)}"
        documents[agent_name(f"agt-{n}")] = agent_document(Agent(f"agt-{n}", "approved", (role,)))
    for n, key in enumerate(keys):
        documents[key_name(key_digest(key))] = key_document(Key(f"key_{n}", "evaluate"))
    names = list(documents)
    url = f"sqlite+aiosqlite:///{stack.directory / 'data' / 'sluice.db'}"
    async with asyncio.TaskGroup() as group:
        store = await Store.open(url, Clock(lambda: time.time_ns() // 1000, time.monotonic), group)
        for at in range(0, len(names), CHUNK):
            chunk = {name: documents[name] for name in names[at : at + CHUNK]}

            async def work(tx: Transaction, chunk: dict[str, bytes | None] = chunk) -> int:
                return await tx.publish(chunk)

            await store.write("default", work)
    await store.close()


async def decisions(stack: Stack, keys: list[str], part: int) -> tuple[list[float], list[float]]:
    """The time that each of a hundred roles took for its first decision, and for the next."""
    url = f"http://127.0.0.1:{stack.sidecar.port}/v1/context/evaluate"
    first: list[float] = []
    following: list[float] = []
    async with aiohttp.ClientSession() as session:
        for n in range(101):
            number = n * (POLICIES // part) // 101
            body = stack.ask(agent_role=f"role-{number}", agent_id=f"agt-{number}")
            headers = {"X-API-Key": keys[number], "Content-Type": "application/json"}
            for times in (first, following):
                began = time.perf_counter()
                async with session.post(url, data=json.dumps(body), headers=headers) as answer:
                    said = await answer.json()
                times.append(time.perf_counter() - began)
                assert said["decision"] == "ALLOW", said
    return first[1:], following[1:]  # the first of all makes the connection


if __name__ == "__main__":
    main()
