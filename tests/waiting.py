"""Waiting for a condition, never for a duration.

A test that sleeps is too slow on a quiet machine and fails on a busy one. So a test names what it
waits for, and how long is only a matter of when to give up. Where it is a claim that something does
*not* happen, or that time itself passes, the test says so beside its `sleep`. Knows nothing of
Sluice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE = 60.0
"""Seconds until a condition counts as one that never comes true. A test that passes waits less."""
POLL = 0.01


def until(what: str, true: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Returns once `true()` is; an `AssertionError` that names `what` after `seconds`, or after
    PATIENCE if that is longer: a machine may be busy."""
    end = time.monotonic() + max(seconds, PATIENCE)
    while not true():
        assert time.monotonic() < end, f"gave up waiting: {what}"
        time.sleep(POLL)


async def until_async(what: str, true: Callable[[], object], seconds: float = PATIENCE) -> None:
    """The same for what other tasks of this loop bring about."""
    end = time.monotonic() + max(seconds, PATIENCE)
    while not true():
        assert time.monotonic() < end, f"gave up waiting: {what}"
        await asyncio.sleep(POLL)


async def until_told(what: str, ask: Callable[[], Awaitable[object]]) -> None:
    """The same for what has to be asked for: returns once an answer is true."""
    end = time.monotonic() + PATIENCE
    while not await ask():
        assert time.monotonic() < end, f"gave up waiting: {what}"
        await asyncio.sleep(POLL)


async def turns(count: int = 50) -> None:
    """Lets every task of this loop go on that can, over and over: what one end of a connection has
    written arrives at the other, if both are here. Takes turns of the loop and not time, so a busy
    machine makes no difference. Threads and other processes are not waited for."""
    for _ in range(count):
        await asyncio.sleep(0)


async def still(value: Callable[[], int], seconds: float = 0.3) -> int:
    """The value once it has not changed for so long: a sender is held back, say."""
    end = time.monotonic() + PATIENCE
    found, since = value(), time.monotonic()
    while time.monotonic() < since + seconds:
        assert time.monotonic() < end, "it never comes to rest"
        await asyncio.sleep(POLL)
        if value() != found:
            found, since = value(), time.monotonic()
    return found


async def never() -> None:
    """For a peer that never answers; ends when it is cancelled."""
    await asyncio.get_running_loop().create_future()
