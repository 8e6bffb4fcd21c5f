"""What one candidate costs an evaluation: `python -m tests.benchmarks.candidates [REQUESTS]`.

Two sidecars in one process, of equal tenants, but that one lists a candidate. The mixed requests of
`mixed` go through their ports without a network, to both in turn; a rate is requests by CPU second
of all threads, record and disk included, and the ratio is the median of the ratios pair by pair.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import uvloop

from policies.definitions.model import Agent, Candidate, Policy, TenantSettings
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    candidate_name,
    role_document,
    role_name,
    tenant_document,
)
from tests.benchmarks import mixed
from tests.benchmarks.core import parse_definitions
from tests.benchmarks.measure import CORES, Figure, directory
from tests.support.fake_control_api import EVALUATE_KEY, FakeControlApi, fake_control_api
from tests.support.sidecar import RunningSidecar, running_sidecar

ROUNDS = 9
CONNECTIONS = 64


def candidates() -> dict[str, dict[str, list[Policy]]]:
    """What a candidate may be: as the active policies, or another set of each role."""
    active = parse_definitions(mixed.policies())
    alike = {
        role: [replace(each, denied_tasks=(*each.denied_tasks, "new")) for each in policies]
        for role, policies in active.items()
    }
    closed = {role: [replace(policies[0], allowed_sources=())] for role, policies in active.items()}
    return {
        "the same policies": active,
        "others that decide alike": alike,
        "others that deny everything": closed,
    }


def publish(control: FakeControlApi, candidate: dict[str, list[Policy]] | None) -> None:
    control.create_tenant()
    changes: dict[str, bytes | None] = {}
    for role, policies in parse_definitions(mixed.policies()).items():
        changes[role_name(role)] = role_document(policies)
    for number in range(mixed.ROLES):
        agent = Agent(f"agent-{number}", "approved", (f"role-{number}",))
        changes[agent_name(agent.agent_id)] = agent_document(agent)
    if candidate is not None:
        for role, policies in candidate.items():
            changes[candidate_name("next", role)] = role_document(policies)
        listed = (Candidate("next", control.revision + len(changes) + 1),)
        changes["tenant"] = tenant_document(TenantSettings("default", candidates=listed))
    control.publish(changes)


class Connection(asyncio.Transport):
    """A connection without a network: its client sends the next request once it has an answer."""

    def __init__(self, port: Any, turn: "Turn") -> None:
        super().__init__()
        self._turn = turn
        self.protocol = port()
        self.protocol.connection_made(self)

    def write(self, data: Any) -> None:
        assert bytes(data[:12]) == b"HTTP/1.1 200", bytes(data)
        self._turn.loop.call_soon(self.send)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def send(self) -> None:
        sent = self._turn.next()
        if sent is not None:
            self.protocol.data_received(sent)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Turn:
    """So many requests to one sidecar."""

    def __init__(self, requests: list[bytes]) -> None:
        self.loop = asyncio.get_running_loop()
        self._requests = cycle(requests)
        self._left = self._open = 0
        self._done = self.loop.create_future()

    def next(self) -> bytes | None:
        if self._left:
            self._left -= 1
            return next(self._requests)
        self._open -= 1
        if not self._open:
            self._done.set_result(None)
        return None

    async def take(self, connections: list[Connection], count: int) -> float:
        """Requests by CPU second."""
        self._left, self._open = count, len(connections)
        self._done = self.loop.create_future()
        started = time.process_time()
        for each in connections:
            each.send()
        await self._done
        return count / (time.process_time() - started)


@asynccontextmanager
async def ready(
    folder: Path, candidate: dict[str, list[Policy]] | None, turn: Turn
) -> AsyncIterator[list[Connection]]:
    """A sidecar that has answered each request once, and whose records ship."""
    folder.mkdir()
    async with fake_control_api() as control:
        publish(control, candidate)
        async with running_sidecar(folder, control) as running:
            connections = [Connection(running.ports[0], turn) for _ in range(CONNECTIONS)]
            await turn.take(connections, mixed.REQUESTS)
            await drained(running)
            yield connections
            await drained(running)


async def drained(running: RunningSidecar) -> None:
    batch = await running.spool.batch(1 << 30, 1 << 20)
    if batch is not None:
        await running.spool.acknowledge(batch.instance, batch.last_n)


async def figure(name: str, candidate: dict[str, list[Policy]], count: int) -> Figure:
    turn = Turn(mixed.evaluations(EVALUATE_KEY).requests)
    with directory() as folder:
        async with (
            ready(folder / "without", None, turn) as without,
            ready(folder / "with", candidate, turn) as beside,
        ):
            pairs = []
            for number in range(ROUNDS):
                # Each goes first in every other round.
                order = (without, beside) if number % 2 else (beside, without)
                rates = {id(each): await turn.take(each, count) for each in order}
                pairs.append((rates[id(without)], rates[id(beside)]))
    ratio = statistics.median(other / one for one, other in pairs)
    ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
    value = f"{theirs:,.0f} against {ours:,.0f} a CPU second"
    return Figure(f"evaluate, a candidate: {name}", value, ratio, ">= 0.9", ratio >= 0.9)


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else mixed.REQUESTS
    print(f"{len(CORES)} cores, {count} requests a round, {ROUNDS} rounds", flush=True)
    for name, candidate in candidates().items():
        print((await figure(name, candidate, count)).row(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
