"""Keeps the connections to one server, and gives each request one: a connection of HTTP/1.1 to
itself, or a stream of a connection of HTTP/2 that others use too.

Reads and writes no bytes: the connections do. Which version of HTTP a connection speaks is known
once it is open, since TLS may leave it to the server; until the next one says otherwise, others are
expected to speak the same.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.client.dialler import ClientLimits, Destination, DialledProtocol, Dialler
from sidecar.http.client.egress_guard import EgressGuard
from sidecar.http.client.http2_connection import NotHttp2, SharedConnection
from sidecar.http.client.http2_stream import UpstreamStream
from sidecar.http.http2.session import MAX_STREAMS
from sidecar.platform.eager import within_task
from sidecar.settings.model import HttpVersion

Carrier = UpstreamConnection | UpstreamStream
"""What carries one request and its response."""
_Opened = UpstreamConnection | SharedConnection


class Pool:
    """A pool of connections to the server `destination`, whose addresses `guard` has to allow.
    `http` says which version of HTTP they speak; with `auto`, TLS negotiates it, and without TLS it
    is 1."""

    def __init__(
        self,
        destination: Destination,
        guard: EgressGuard,
        limits: ClientLimits,
        http: HttpVersion = "1",
    ) -> None:
        self._limits = limits
        self.only_http2 = http == "2"
        """True if HTTP/2 is required."""
        self._shares: bool | None = http == "2"
        """Whether a new connection is expected to speak HTTP/2; None if that is not known."""
        one, shared = partial(UpstreamConnection, limits), partial(SharedConnection, limits, self)
        factory: Callable[[], DialledProtocol] = shared if self.only_http2 else one
        if destination.context is not None and http != "1":
            factory = partial(_Negotiating, None if self.only_http2 else one, shared)
            self._shares = True if self.only_http2 else None
        self._dialler = Dialler[_Opened](destination, guard, limits, factory)
        # A connection that is still unused at the second sweep has been idle for `idle_seconds` at
        # most.
        self._sweep_seconds = limits.idle_seconds / 2
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._idle: deque[UpstreamConnection] = deque()
        self._shared: list[SharedConnection] = []
        """The connections of HTTP/2 that are open."""
        self._waiting: dict[asyncio.Future[Carrier | None], None] = {}
        """The requests that wait for a stream, in order."""
        self._opening: set[asyncio.Task[None]] = set()
        """The tasks that open connections for those."""

    def close(self) -> None:
        """Close the idle connections. Requests that use the others give them back when they are
        done."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for opening in self._opening:
            opening.cancel()
        while self._idle:
            self.discard(self._idle.pop())
        for shared in list(self._shared):
            shared.end()

    @property
    def connections(self) -> int:
        """The number of connections that are open, in use or idle, or being opened."""
        return self._dialler.connections

    def take(self) -> Carrier | None:
        """Return an idle connection that is open, or a stream of one that has room for another;
        None if a new connection has to be opened. The caller owns what it gets, and must `release`
        or `discard` it."""
        for shared in self._shared:
            if shared.has_room:
                return shared.take()
        idle = self._idle
        while idle:
            # The one used last: the server is the least likely to have closed it.
            connection = idle.pop()
            if connection.failure is None:
                return connection
            self.discard(connection)
        return None

    async def connect(self) -> Carrier:
        """Open a new connection, which the caller must `release` or `discard`. If the limit is
        reached, an idle connection is closed for it, or it waits for a free place. Of HTTP/2, it
        may be a stream of a connection that is open. Raises `OSError` as `Dialler.connect` does."""
        while self._shares is not False:
            stream = await self._stream()
            if stream is not None:
                return stream
        if self._idle and self._dialler.full:
            self.discard(self._idle.popleft())
        opened = await self._dialler.connect()
        if isinstance(opened, UpstreamConnection):
            return opened
        stream = self._adopt(opened)
        if stream is None:
            raise ConnectionResetError("the connection was lost before it could be used")
        return stream

    def release(self, connection: Carrier) -> None:
        """Take a connection back after its response was read to the end. Discards it if it can't
        carry another request."""
        if not connection.rest():
            self.discard(connection)
        elif isinstance(connection, UpstreamConnection) and not self._dialler.pass_on(connection):
            self._idle.append(connection)
            self._schedule_sweep()

    def discard(self, connection: Carrier) -> None:
        """Break the connection off and free its place. If a request is under way, this tells the
        server that its response is no longer wanted."""
        connection.abort()
        self.forget(connection)

    def forget(self, connection: Carrier) -> None:
        """Free the place of a connection that is lost, or that no longer belongs to the pool."""
        if isinstance(connection, UpstreamConnection) and connection.pooled:
            connection.pooled = False
            self._dialler.free()
            if self._waiting:
                self._serve_waiting()

    # ------------------------------------------------------------------------ HTTP/2's connections

    async def _stream(self) -> Carrier | None:
        """Wait for a stream, and for a new connection if none has room. Returns None if the server
        speaks HTTP/1.1. Raises `OSError` as `connect` does."""
        await within_task()
        waiter: asyncio.Future[Carrier | None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        self._serve_waiting()
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                carrier = waiter.result()
                if carrier is not None:
                    self.discard(carrier)
            raise
        finally:
            self._waiting.pop(waiter, None)

    def _serve_waiting(self) -> None:
        """Give the requests that wait a stream each, and open connections for those that are
        left."""
        while self._waiting and (carrier := self.take()) is not None:
            self._hand(carrier)
        # As many as fit into a connection wait for the same one.
        if len(self._waiting) > len(self._opening) * MAX_STREAMS and not self._dialler.full:
            self._opening.add(asyncio.get_running_loop().create_task(self._open()))

    def _hand(self, carrier: Carrier | None) -> None:
        """Give `carrier` to the request that has waited longest, or the word that it has to open a
        connection itself."""
        while self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            if not waiter.done():
                waiter.set_result(carrier)
                return
        if carrier is not None:
            self.release(carrier)

    async def _open(self) -> None:
        try:
            opened = await self._dialler.connect()
        except OSError as error:
            self._opening_done()
            self._fail_waiting(_cause(error) if self.only_http2 else error)
            return
        self._opening_done()
        if isinstance(opened, SharedConnection):
            stream = self._adopt(opened)
            if stream is not None:
                self._hand(stream)
                self._serve_waiting()
            else:
                # Not another connection at once: a server that takes no requests, or drops each
                # connection, would get one after the other.
                self._fail_waiting(ConnectionResetError("the server takes no requests"))
                opened.end()
            return
        self._shares = False
        self._hand(opened)
        while self._waiting:
            self._hand(None)

    def _fail_waiting(self, error: OSError) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def _opening_done(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._opening.discard(task)

    def _adopt(self, shared: SharedConnection) -> UpstreamStream | None:
        """Keep a new connection, and return a stream of it; None if it was lost meanwhile."""
        if shared.failure is not None:
            self._dialler.free()
            return None
        self._shares = True
        self._shared.append(shared)
        self._schedule_sweep()
        return shared.take() if shared.has_room else None

    def has_room(self, _shared: SharedConnection) -> None:
        """Note that a request of a connection has ended."""
        if self._waiting:
            self._serve_waiting()

    def lost(self, shared: SharedConnection) -> None:
        """Note that a connection has ended."""
        if shared in self._shared:
            self._shared.remove(shared)
            self._dialler.free()
            self.has_room(shared)

    # -------------------------------------------------------------------------------------- sweeps

    def _schedule_sweep(self) -> None:
        if self._sweep_timer is None:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        # The first has been idle longest: connections are taken and returned at the other end.
        while self._idle and self._idle[0].unused:
            self.discard(self._idle.popleft())
        for connection in self._idle:
            connection.unused = True
        for shared in list(self._shared):
            shared.watch()
            if shared.idle and shared.unused:
                shared.end()
            shared.unused = shared.idle
        if self._idle or self._shared:
            self._schedule_sweep()


class _Negotiating(DialledProtocol):
    """A connection whose version of HTTP TLS has negotiated once it is made. `one` and `shared`
    make the protocols of HTTP/1.1 and 2; `one` is None if HTTP/2 is required."""

    def __init__(
        self, one: Callable[[], UpstreamConnection] | None, shared: Callable[[], SharedConnection]
    ) -> None:
        self._one, self._shared = one, shared
        self._chosen: _Opened | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._chosen = self._shared()
        elif self._one is not None:
            self._chosen = self._one()
        if self._chosen is not None:
            self._transport.set_protocol(self._chosen)
            self._chosen.connection_made(transport)

    async def opened(self) -> Any:
        if self._chosen is None:
            raise NotHttp2(_NOT_CHOSEN)
        return await self._chosen.opened()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_NOT_CHOSEN = "it does not choose HTTP/2 when TLS offers it alone, as `http: 2` says"


def _cause(error: OSError) -> OSError:
    """Return the error of a connection that has to be one of HTTP/2."""
    refused = isinstance(error, ssl.SSLError) and "NO_APPLICATION_PROTOCOL" in (error.reason or "")
    return NotHttp2(_NOT_CHOSEN) if refused else error
