"""Holds what every layer may know about the current request: its `traceparent` headers, the
revision of the policy set after its last write, and whether its client has left, which cancels its
work.

An operation that only reads, and may take long, is marked with `ends_with_client`, so that it is
cancelled when its client leaves. An operation that decides or changes something runs to its end:
nothing may be half done. Between two complete steps it may ask `client_left`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from policies.ground.errors import Malformed

REVISION_HEADER = "X-Sluice-Revision"
WRITTEN_REVISION: ContextVar[int | None] = ContextVar("revision", default=None)


TRACEPARENT: ContextVar[Sequence[str]] = ContextVar("traceparent", default=())


P = ParamSpec("P")
T = TypeVar("T")


class ClientLeft(Malformed):
    """the client left before it was answered"""


class Departure:
    """Cancels the work for a client when the client leaves. `left` is True once it has left."""

    __slots__ = ("_waiting", "left")

    def __init__(self) -> None:
        self.left = False
        self._waiting: set[asyncio.Timeout] = set()

    def leave(self) -> None:
        """Record that the client has left, and cancel what runs within `until`."""
        self.left = True
        now = asyncio.get_running_loop().time()
        for each in self._waiting:
            each.reschedule(now)
        self._waiting.clear()

    @asynccontextmanager
    async def until(self) -> AsyncIterator[None]:
        """Cancel the block when the client leaves, and raise `ClientLeft`."""
        if self.left:
            raise ClientLeft
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._waiting.add(limit)
                try:
                    yield
                finally:
                    self._waiting.discard(limit)
        except TimeoutError:
            if limit.expired():
                raise ClientLeft from None
            raise


DEPARTURE: ContextVar[Departure | None] = ContextVar("departure", default=None)
"""The `Departure` of the current request's client; None outside of a request."""


def client_left() -> bool:
    """Return whether the client of the current request has left."""
    departure = DEPARTURE.get()
    return departure is not None and departure.left


@asynccontextmanager
async def until_departed() -> AsyncIterator[None]:
    """Run the block within `Departure.until` of the current request's client. Outside of a request,
    just run it."""
    departure = DEPARTURE.get()
    if departure is None:
        yield
        return
    async with departure.until():
        yield


def ends_with_client(operation: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Make an operation end when its client leaves. It must be safe to cancel at any point."""

    @wraps(operation)
    async def ending(*given: P.args, **named: P.kwargs) -> T:
        async with until_departed():
            return await operation(*given, **named)

    return ending
