"""Waits for a condition, never for a duration.

A test that sleeps is too slow on a quiet machine and fails on a busy one. So a test names what it
waits for; the timeout only says when to give up. If a test claims that something does *not* happen,
or that time itself passes, it says so beside its `sleep`.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import Awaitable, Callable

PATIENCE = 60.0
"""The seconds until a condition counts as one that never becomes true. A passing test waits
less."""
POLL = 0.01
Errors = type[Exception] | tuple[type[Exception], ...]
AWAY: Errors = (OSError, http.client.HTTPException, ValueError)
"""Errors of a call while the service doesn't respond."""
TURNS_A_HOP = 10
"""The number of turns of the loop after which sent bytes are waited for: a message may take some
hops."""


def until(
    what: str,
    true: Callable[[], object],
    *,
    despite: Errors = (),
    seconds: float = PATIENCE,
) -> None:
    """Return once `true()` is true. An error of a class in `despite` counts as false.

    Raises `AssertionError` with `what` after `seconds`. Only work that takes minutes on a quiet
    machine needs more than the default."""
    end = time.monotonic() + seconds
    while not _holds(true, despite):
        assert time.monotonic() < end, f"gave up waiting: {what}"
        time.sleep(POLL)


async def until_async(what: str, true: Callable[[], object]) -> None:
    """Return the result of `true()`, called again and again, once it is true; if it returns an
    awaitable, that is awaited. Other tasks of this loop run meanwhile. Raises `AssertionError` with
    `what` after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not await _value(true()):
        assert time.monotonic() < end, f"gave up waiting: {what}"
        await asyncio.sleep(POLL)


def _holds(true: Callable[[], object], despite: Errors) -> bool:
    try:
        return bool(true())
    except despite:
        return False


async def _value(found: object) -> object:
    return await found if isinstance(found, Awaitable) else found


async def turns(count: int = 50) -> None:
    """Let all tasks of this loop run on as far as they can, so that bytes written at one end of a
    connection arrive at the other, if both are in this process. Takes turns of the loop, not time,
    so a busy machine makes no difference. Does not wait for threads and other processes."""
    for turn in range(1, count + 1):
        await asyncio.sleep(0)
        if turn % TURNS_A_HOP == 0:
            await _delivered()


async def _delivered() -> None:
    """Return once the kernel has delivered the bytes sent over loopback before. It queues packets,
    and on a busy core another thread takes them out, maybe later than the loop's next turns. A byte
    that is sent now comes out behind them."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    with sender, receiver:
        receiver.setblocking(False)
        sender.send(b"x")
        await loop.sock_recv(receiver, 1)


async def still(value: Callable[[], int], seconds: float = 0.3) -> int:
    """Return the value once it has not changed for `seconds`, as when a sender is held back."""
    end = time.monotonic() + PATIENCE
    found, since = value(), time.monotonic()
    while time.monotonic() < since + seconds:
        assert time.monotonic() < end, "it never comes to rest"
        await asyncio.sleep(POLL)
        if value() != found:
            found, since = value(), time.monotonic()
    return found


async def never() -> None:
    """Serve a peer that never responds; it ends when it is cancelled."""
    await asyncio.get_running_loop().create_future()
