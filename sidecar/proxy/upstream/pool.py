"""Keeps connections to one data source open between requests.

aiohttp's connector opens them (`dialler.py`) and limits their number. It could also keep them, but
at a cost per request that a proxy to a single destination needn't pay. So the connector believes
that all of them are in use, while idle ones wait here.

Knows connections. Knows nothing of what is sent.
"""

import asyncio
from collections import deque
from functools import partial

import aiohttp

from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.upstream.connection import UpstreamConnection
from sidecar.proxy.upstream.dialler import Dialler


class Pool:
    """At most `limits.connections` connections, which `dialler` opens."""

    def __init__(self, dialler: Dialler, limits: ProxyLimits) -> None:
        self._dialler = dialler
        self._limits = limits
        self._idle: deque[UpstreamConnection] = deque()
        self._open = 0
        self._waiting = 0
        self._sweep_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Opens no connection yet: an unreachable data source must not keep the sidecar from
        starting."""
        self._loop = asyncio.get_running_loop()
        self._dialler.open(partial(UpstreamConnection, limits=self._limits))

    async def close(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        while self._idle:
            self.discard(self._idle.pop())
        await self._dialler.close()

    @property
    def connections(self) -> int:
        """The number of open connections, in use or idle."""
        return self._open

    def take_idle(self) -> UpstreamConnection | None:
        """An open connection, if there is one. The caller owns it, and must release or discard
        it."""
        while self._idle:
            # The one used last: the data source is the least likely to have closed it.
            connection = self._idle.pop()
            # A connection on which unrequested data arrived is closing: its next user would take
            # that data for the response.
            usable = not connection.should_close and connection.is_connected()
            if usable and not self._stale(connection):
                connection.reused, connection.received_any, connection.idle = True, False, False
                return connection
            self.discard(connection)
        return None

    async def connect(self) -> UpstreamConnection:
        """A new connection, owned by the caller as with `take_idle`. Raises `UpstreamFailed`."""
        self._waiting += 1
        try:
            lease = await self._dialler.connect()
        finally:
            self._waiting -= 1
        connection = lease.protocol
        assert isinstance(connection, UpstreamConnection)
        connection.lease = lease
        self._open += 1
        return connection

    def release(self, connection: UpstreamConnection) -> None:
        """Takes a connection back whose response was read to its end. Discards it instead if it
        can't be used again."""
        if (
            connection.should_close
            or not connection.is_connected()
            or not connection.fully_consumed
        ):
            self.discard(connection)
        elif self._waiting and self._open >= self._limits.connections:
            # A request waits at the limit, and only the connector can wake it.
            assert connection.lease is not None
            connection.lease.release()
            connection.lease = None
            self._open -= 1
        else:
            connection.idle_since, connection.idle = self._loop.time(), True
            self._idle.append(connection)
            if self._sweep_timer is None:
                self._schedule_sweep()

    def detach(self, connection: UpstreamConnection, tail: bytes) -> BufferedConnection:
        """Takes a connection out of the pool to become one end of a tunnel. `tail` holds the bytes
        that have already arrived on it."""
        lease, connection.lease = connection.lease, None
        transport = connection.transport
        assert lease is not None
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection was closed")
        self._open -= 1

        def on_lost(_exc: Exception | None) -> None:
            lease.close()

        detached = BufferedConnection(self._limits.buffer_bytes, on_lost).adopt(transport, tail)
        # The reader of `tail` paused the transport, so that nothing was lost before this.
        detached.transport.resume_reading()
        return detached

    def discard(self, connection: UpstreamConnection) -> None:
        """Breaks the connection. If a request is under way, this tells the data source that its
        response is no longer wanted."""
        lease, connection.lease = connection.lease, None
        # Removed first: losing the connection would make it fall back to the parser.
        connection.interceptor = None
        connection.abort()
        if lease is not None:
            self._open -= 1
            lease.close()

    def _stale(self, connection: UpstreamConnection) -> bool:
        return self._loop.time() - connection.idle_since > self._limits.upstream_idle_seconds

    def _schedule_sweep(self) -> None:
        self._sweep_timer = self._loop.call_later(self._limits.upstream_idle_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        # The first has been idle longest: connections are taken and returned at the other end.
        while self._idle and self._stale(self._idle[0]):
            self.discard(self._idle.popleft())
        if self._idle:
            self._schedule_sweep()
