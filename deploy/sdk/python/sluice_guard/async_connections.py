"""Sends requests over kept connections, as `connections` does, in the event loops of asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import cast

from sluice_guard.decisions import Answer
from sluice_guard.endpoint import (
    FAILURES,
    MAX_IDLE,
    POOLS,
    Endpoint,
    Prepare,
    is_readable,
    problem,
    seconds_left,
)
from sluice_guard.exchange import Exchange


class _Connection(asyncio.Protocol):
    """One connection, as an asyncio protocol. Bytes that arrive go into its exchange at once, and a
    whole response or the end of the connection wakes the waiting request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._exchange = Exchange()
        self._waiter: asyncio.Future[Answer | Exception] | None = None
        self._transport: asyncio.Transport | None = None
        self._reusable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.close()  # or it would be taken for the answer to the next request
            return
        try:
            answer = self._exchange.receive(data)
        except FAILURES as error:
            self._wake(error)
            return
        if answer is not None:
            self._wake(answer)

    def eof_received(self) -> None:
        self.data_received(b"")  # an answer may end with the connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._reusable = False
        self._wake(exc or ConnectionResetError())

    def is_usable(self) -> bool:
        """Return whether the connection can carry a request: it is open, and holds no bytes that no
        request asked for."""
        transport = self._transport
        if not self._reusable or transport is None or transport.is_closing():
            return False
        return not is_readable(transport.get_extra_info("socket"))

    async def ask(self, prepare: Prepare, deadline: float) -> Answer:
        """Send a request and return the response. If this call ends in any other way, the
        connection is closed."""
        assert self._transport is not None  # it is made before anyone gets to ask
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds_left(deadline), self._wake, TimeoutError())
        self._reusable = False
        try:
            self._transport.write(prepare(self._exchange))
            answer = await self._waiter
            if isinstance(answer, Exception):
                raise answer
            self._reusable = self._exchange.reusable()
            return answer
        finally:
            timer.cancel()
            self._waiter = None
            if not self._reusable:
                self.close()

    def close(self) -> None:
        self._reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _wake(self, outcome: Answer | Exception) -> None:
        # The first outcome counts. A result even if it is an error: an error that a cancelled task
        # no longer reads would be logged.
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)


class _OfLoop(threading.local):
    """A thread's event loop and its idle connections, which no other loop can use."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.idle: deque[_Connection] = deque()


class AsyncConnections:
    """The kept connections of a process, separate for each event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._of_loop = _OfLoop()
        POOLS.add(self)

    async def post(self, prepare: Prepare) -> Answer | str:
        """Send a request, and return the response, or the reason in words why there was none."""
        deadline = time.monotonic() + self._endpoint.timeout
        loop = asyncio.get_running_loop()
        idle = self._idle(loop)
        try:
            connection = _usable(idle) or await self._connect(loop, deadline)
            answer = await connection.ask(prepare, deadline)
        except (TimeoutError, *FAILURES) as error:
            return problem(error, self._endpoint)
        if len(idle) < MAX_IDLE:
            idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close the idle connections of this event loop."""
        idle = self._idle(asyncio.get_running_loop())
        while idle:
            idle.pop().close()

    def after_fork(self) -> None:
        # Not closed: that would take the parent's sockets out of the parent's selector.
        self._of_loop = _OfLoop()

    def _idle(self, loop: asyncio.AbstractEventLoop) -> deque[_Connection]:
        mine = self._of_loop
        if mine.loop is not loop:
            mine.loop, mine.idle = loop, deque()
        return mine.idle

    async def _connect(self, loop: asyncio.AbstractEventLoop, deadline: float) -> _Connection:
        host, port, tls, _ = self._endpoint
        connecting = loop.create_connection(
            lambda: _Connection(loop), host, port, ssl=tls, server_hostname=host if tls else None
        )
        _, connection = await asyncio.wait_for(connecting, seconds_left(deadline))
        return connection


def _usable(idle: deque[_Connection]) -> _Connection | None:
    while idle:
        connection = idle.pop()
        if connection.is_usable():
            return connection
        connection.close()
    return None
