"""Ends long work of a request whose client has left. Knows no request and no connection.

A handler goes on when its client leaves, since what it writes may be under way. What only computes
says so, and ends then: a client could otherwise pile it up, and the memory that it holds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar

from policies.ground.errors import Malformed


class ClientDisconnected(Malformed):
    """the client disconnected before its request was answered"""


class Client:
    """The client of one connection."""

    __slots__ = ("_on_left", "left")

    def __init__(self) -> None:
        self.left = False
        self._on_left: set[Callable[[], None]] = set()

    def leave(self) -> None:
        """Notes that the connection is lost."""
        self.left = True
        for each in tuple(self._on_left):
            each()

    @asynccontextmanager
    async def stays(self) -> AsyncIterator[None]:
        """Like `while_client_stays`, for this client."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as under_way:

                def end() -> None:
                    under_way.reschedule(loop.time())

                self._on_left.add(end)
                try:
                    if self.left:
                        end()
                    yield
                finally:
                    self._on_left.discard(end)
        except TimeoutError:
            raise ClientDisconnected from None


CLIENT: ContextVar[Client | None] = ContextVar("client", default=None)
"""The client of the current request; None for work that no client asked for."""


def while_client_stays() -> AbstractAsyncContextManager[None]:
    """Ends what is within when the client of the current request leaves. Raises
    `ClientDisconnected` then."""
    client = CLIENT.get()
    return nullcontext() if client is None else client.stays()
