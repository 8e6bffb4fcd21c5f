"""The faults as a table: each begins, lasts and ends. A process that a fault killed is started
again, as a supervisor would do. Knows processes and links, and no promise."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

from tests.chaos.system import SIDECARS, Process, System
from tests.support.ports import free_port

Fault = Callable[[System, float], Awaitable[None]]


class Target(Protocol):
    """A running process: a service or a server."""

    def signal(self, number: signal.Signals) -> None: ...

    def start(self) -> None: ...


Of = Callable[[System], Target]


def killed(of: Of) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        target = of(system)
        target.signal(signal.SIGKILL)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(target.start)

    return fault


def stopped(of: Of) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        target = of(system)
        target.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            target.signal(signal.SIGCONT)

    return fault


async def postgres_put_back(system: System, seconds: float) -> None:
    copy = await asyncio.to_thread(system.postgres.copy)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(system.postgres.put_back, copy)


async def postgres_failover(system: System, seconds: float) -> None:
    """The primary's machine dies, and its synchronous standby takes over at another address."""
    dead, link, spare = system.postgres, system.links["control>postgres"], system.spare
    standby = await asyncio.to_thread(dead.standby, free_port())
    await asyncio.sleep(seconds)
    dead.signal(signal.SIGKILL)
    await link.close()
    await asyncio.to_thread(standby.promote)
    spare.targets = [standby.port]
    system.postgres, system.spare = standby, link
    system.links["control>postgres"] = await spare.start()


async def redis_flushed(system: System, seconds: float) -> None:
    for _ in range(3):
        await asyncio.to_thread(system.redis.command, "FLUSHALL")
        await asyncio.sleep(seconds / 3)


async def redis_garbage(system: System, seconds: float) -> None:
    links = [system.links[name] for name in ("control>redis", "sidecar>redis")]
    for link in links:
        link.garbage = True
        link.reset()
    await asyncio.sleep(seconds)
    for link in links:
        link.garbage = False
        link.reset()


def reset(name: str) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        for _ in range(5):
            system.links[name].reset()
            await asyncio.sleep(seconds / 5)

    return fault


def slow(name: str) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        system.links[name].latency = 5.0
        await asyncio.sleep(seconds)
        system.links[name].latency = 0.0
        system.links[name].reset()

    return fault


def disk(error: str) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        system.sidecars[0].order(disk=error)
        await asyncio.sleep(seconds)
        system.sidecars[0].order()

    return fault


def clock(of: Callable[[System], Process], hours: int) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        of(system).order(clock=hours * 3600.0)
        await asyncio.sleep(seconds)
        of(system).order()

    return fault


async def rolling_restart(system: System, seconds: float) -> None:
    for process in (*system.controls, *system.sidecars):
        code = await asyncio.to_thread(process.service.stop)
        assert code == 0, f"{process.service.name} ended with {code}:\n{process.service.tail()}"
        await asyncio.to_thread(process.service.start)
        await asyncio.sleep(seconds / (SIDECARS + 2))


async def nothing(_: System, seconds: float) -> None:
    await asyncio.sleep(seconds)


def sidecar(system: System) -> Process:
    return system.sidecars[0]


def control(system: System) -> Process:
    return system.controls[0]


def postgres(system: System) -> Target:
    return system.postgres


def redis(system: System) -> Target:
    return system.redis


RESTORES = frozenset({"PostgreSQL put back"})
"""The faults after which an operator has to accept what the log has lost."""
LINKS = ("sidecar>control", "control>postgres", "sidecar>redis", "control>redis")
FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "sidecar killed": killed(sidecar),
    "sidecar stopped": stopped(sidecar),
    "control killed": killed(control),
    "control stopped": stopped(control),
    "PostgreSQL killed": killed(postgres),
    "PostgreSQL stopped": stopped(postgres),
    "PostgreSQL put back": postgres_put_back,
    "PostgreSQL failover": postgres_failover,
    "Redis killed": killed(redis),
    "Redis stopped": stopped(redis),
    "Redis flushed": redis_flushed,
    "Redis talks rubbish": redis_garbage,
    **{f"{name} reset": reset(name) for name in LINKS},
    **{f"{name} 5 s slow": slow(name) for name in LINKS},
    "disk full": disk("ENOSPC"),
    "disk fails": disk("EIO"),
    "sidecar clock +1 h": clock(sidecar, 1),
    "sidecar clock -1 h": clock(sidecar, -1),
    "control clock +1 h": clock(control, 1),
    "control clock -1 h": clock(control, -1),
    "rolling restart": rolling_restart,
}
