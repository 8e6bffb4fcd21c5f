"""The faults, as a table: each begins, lasts, and ends; what it killed is started again, as
whatever runs the services would. Knows processes and links, and no promise.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from tests.chaos.system import SIDECARS, Process, System

Fault = Callable[[System, float], Awaitable[None]]


def _of(kind: str) -> Callable[[System], Process]:
    return lambda system: getattr(system, kind)[0]


def killed(kind: str) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        process = _of(kind)(system)
        process.service.kill()
        await asyncio.sleep(seconds)
        await asyncio.to_thread(process.service.start, ready=False)

    return fault


def stopped(kind: str) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        process = _of(kind)(system)
        process.service.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            process.service.signal(signal.SIGCONT)

    return fault


async def postgres_killed(system: System, seconds: float) -> None:
    system.postgres.signal(signal.SIGKILL)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(system.postgres.start)


async def postgres_stopped(system: System, seconds: float) -> None:
    system.postgres.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        system.postgres.signal(signal.SIGCONT)


async def postgres_put_back(system: System, seconds: float) -> None:
    copy = await asyncio.to_thread(system.postgres.copy)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(system.postgres.put_back, copy)


async def redis_killed(system: System, seconds: float) -> None:
    system.redis.signal(signal.SIGKILL)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(system.redis.start)


async def redis_stopped(system: System, seconds: float) -> None:
    system.redis.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        system.redis.signal(signal.SIGCONT)


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


def clock(kind: str, hours: int) -> Fault:
    async def fault(system: System, seconds: float) -> None:
        _of(kind)(system).order(clock=hours * 3600.0)
        await asyncio.sleep(seconds)
        _of(kind)(system).order()

    return fault


async def rolling_restart(system: System, seconds: float) -> None:
    for process in (*system.controls, *system.sidecars):
        code = await asyncio.to_thread(process.service.stop)
        assert code == 0, f"{process.service.name} ended with {code}:\n{process.service.tail()}"
        await asyncio.to_thread(process.service.start)
        await asyncio.sleep(seconds / (SIDECARS + 2))


async def nothing(_: System, seconds: float) -> None:
    await asyncio.sleep(seconds)


LINKS = ("sidecar>control", "control>postgres", "sidecar>redis", "control>redis")
FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "sidecar killed": killed("sidecars"),
    "sidecar stopped": stopped("sidecars"),
    "control killed": killed("controls"),
    "control stopped": stopped("controls"),
    "PostgreSQL killed": postgres_killed,
    "PostgreSQL stopped": postgres_stopped,
    "PostgreSQL put back": postgres_put_back,
    "Redis killed": redis_killed,
    "Redis stopped": redis_stopped,
    "Redis flushed": redis_flushed,
    "Redis talks rubbish": redis_garbage,
    **{f"{name} reset": reset(name) for name in LINKS},
    **{f"{name} 5 s slow": slow(name) for name in LINKS},
    "disk full": disk("ENOSPC"),
    "disk fails": disk("EIO"),
    "sidecar clock +1 h": clock("sidecars", 1),
    "sidecar clock -1 h": clock("sidecars", -1),
    "control clock +1 h": clock("controls", 1),
    "control clock -1 h": clock("controls", -1),
    "rolling restart": rolling_restart,
}
