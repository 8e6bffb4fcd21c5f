"""Keeps connections to one server open between requests. Knows connections, and nothing of what is
sent."""

import asyncio
from collections import deque
from functools import partial

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.client.dialler import Destination, Dialler
from sidecar.http.client.egress_guard import EgressGuard
from sidecar.http.client.limits import ClientLimits


class Pool:
    """The connections to `destination`, which `guard` has to allow."""

    def __init__(self, destination: Destination, guard: EgressGuard, limits: ClientLimits) -> None:
        factory = partial(UpstreamConnection, limits)
        self._dialler = Dialler(destination, guard, limits, factory)
        # One that is still unused at the second sweep has been idle for that long at most.
        self._sweep_seconds = limits.idle_seconds / 2
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._idle: deque[UpstreamConnection] = deque()

    def close(self) -> None:
        """Closes the idle connections. Those in use are for their users to give back."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        while self._idle:
            self.discard(self._idle.pop())

    @property
    def connections(self) -> int:
        """The number of connections that are open, in use or idle, or being opened."""
        return self._dialler.connections

    def take_idle(self) -> UpstreamConnection | None:
        """An open connection, if there is one. The caller owns it, and must release or discard
        it."""
        idle = self._idle
        while idle:
            # The one used last: the server is the least likely to have closed it.
            connection = idle.pop()
            if connection.failure is None:
                return connection
            self.discard(connection)
        return None

    async def connect(self) -> UpstreamConnection:
        """A connection that was not idle, owned by the caller as with `take_idle`. Raises `OSError`
        as the dialler does."""
        if self._idle and self._dialler.full:
            self.discard(self._idle.popleft())
        return await self._dialler.connect()

    def release(self, connection: UpstreamConnection) -> None:
        """Takes a connection back whose response was read to its end. Discards it instead if it
        can't be used again."""
        if not connection.rest():
            self.discard(connection)
        elif not self._dialler.pass_on(connection):
            self._idle.append(connection)
            if self._sweep_timer is None:
                self._schedule_sweep()

    def discard(self, connection: UpstreamConnection) -> None:
        """Breaks the connection off. If a request is under way, this tells the server that its
        response is no longer wanted."""
        connection.abort()
        self.forget(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """Gives up the place of a connection that is lost, or no longer the pool's."""
        if connection.pooled:
            connection.pooled = False
            self._dialler.free()

    def _schedule_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        # The first has been idle longest: connections are taken and returned at the other end.
        while self._idle and self._idle[0].unused:
            self.discard(self._idle.popleft())
        for connection in self._idle:
            connection.unused = True
        if self._idle:
            self._schedule_sweep()
