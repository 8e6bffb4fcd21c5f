"""Serves one connection from a client, from its first byte to its end, and counts the connections
of a port.

    data_received > incoming.py > request_loop.py > write        time_limits.py ends what hangs

    malformed requests    reach the service like any other
    half-closed clients   are gone, or still get their response, as the limits say
    clients that leave    cancel their request, or not, as the service says
    refused tunnels       nothing that follows a refused CONNECT or Upgrade is read

Knows nothing of what a request asks for.
"""

import asyncio
from typing import cast

from policies.ground.connection_budget import HEADS_FULL, Slot
from sidecar.http.server.incoming import PIECE, Incoming
from sidecar.http.server.request import HandedOver, Serve, Service
from sidecar.http.server.request_loop import RequestLoop
from sidecar.http.server.time_limits import TimeLimits
from sidecar.http.tcp_reset import end_sending, reset


class ServerConnection(asyncio.Protocol):
    """One client's connection to `service`. `connections` holds it while it is open. It takes
    `slot`, unless it runs inside a connection that has one."""

    __slots__ = (
        "_closed", "_connections", "_incoming", "_loop", "_reading_paused", "_request_loop",
        "_service", "_slot", "_time_limits", "congested", "handed_over", "heads", "transport",
    )  # fmt: skip

    def __init__(
        self, service: Service, connections: "set[ServerConnection]", slot: Slot | None = None
    ) -> None:
        self._slot = slot
        self._service = service
        self._connections = connections
        self._loop = loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.congested = False
        self.handed_over = False
        self.heads = service.heads
        self._incoming = incoming = Incoming(self, service.limits, service.budget.head())
        self._time_limits = TimeLimits(self, incoming, service.limits, loop)
        self._request_loop = RequestLoop(self, service, incoming, self._time_limits, loop)
        self._reading_paused = False
        self._closed: asyncio.Future[None] | None = None
        """Done when the connection has ended; set once the sidecar stops."""

    # -------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        if self._slot is not None and not self._slot.take(self.transport.abort):
            self._incoming.stop()
            self.transport.abort()
            return
        self._connections.add(self)
        self._time_limits.start()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.transport = None
        if self._slot is not None:
            self._slot.leave()
        self._connections.discard(self)
        self._time_limits.stop()
        self._incoming.break_off()
        self._time_limits.writable(_gone())
        task, request = self._request_loop.task, self._incoming.current
        if request is not None and request.on_left is not None:
            for on_left in request.on_left:
                on_left()
        if task is not None and self._service.cancels:
            task.cancel()
        if self._closed is not None:
            self._closed.set_result(None)

    def finish(self) -> asyncio.Future[None]:
        """Ends the connection after the request that is being answered. The future is done when it
        has ended."""
        if self._closed is None:
            self._closed = self._loop.create_future()
        self._incoming.last = True
        if self._incoming.current is None and self.transport is not None:
            self.transport.close()
        return self._closed

    async def cut(self) -> None:
        """Ends the connection at once, and the task that answers on it."""
        task = self._request_loop.task
        if self.transport is not None:
            self.transport.abort()
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def reset(self) -> None:
        if self.transport is not None:
            reset(self.transport)

    @property
    def ending(self) -> bool:
        return self._incoming.ending

    # ------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        self._service.flow.received += len(data)
        incoming = self._incoming
        if incoming.unread or len(data) > PIECE or incoming.held():
            if not incoming.stopped:
                incoming.unread += data
        else:
            incoming.parse(data)
            self._request_loop.serve()
        request = incoming.current
        full = request is not None and request.body.full
        if full or incoming.unread or self._reading_paused:
            self.read_on()

    def read_on(self) -> None:
        incoming = self._incoming
        self._request_loop.serve()
        while incoming.unread and not incoming.held():
            incoming.parse_unread()
            self._request_loop.serve()
        self._adjust_reading()
        if incoming.half_closed:
            self._end_half_closed()

    def _adjust_reading(self) -> None:
        transport = self.transport
        if transport is None or self.handed_over:
            return
        request = self._incoming.current
        full = len(self._incoming.unread) > self._service.limits.buffer_bytes
        full = full or (request is not None and request.body.full)
        if full:
            self._time_limits.watch_unread()
        if full != self._reading_paused and not transport.is_closing():
            self._reading_paused = full
            if full:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def body_full(self) -> None:
        self._adjust_reading()

    def body_taken(self) -> None:
        # The reader is in the middle of a step, and must not be re-entered.
        self._loop.call_soon(self.read_on)

    def watch(self) -> None:
        self._time_limits.watch()

    def stop_reading(self) -> None:
        self._incoming.last = True

    # -------------------------------------------------------------------------------- writing

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            raise _gone()
        self._service.flow.sent += len(data)
        transport.write(data)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self._time_limits.writable()
        # Responses to a client that doesn't read must not pile up in memory.
        if self._incoming.current is None:
            self.read_on()

    async def drain(self) -> None:
        if self.transport is None:
            raise _gone()
        if self.congested:
            await self._time_limits.until_writable()

    # -------------------------------------------------------------------------------- the end

    def end(self) -> None:
        """Ends the connection once the written bytes are sent. Bytes that the client still sends
        are discarded: a socket that is closed with unread bytes resets the connection, and its
        client could lose the response (RFC 9112 section 9.6), or within TLS the alert behind it."""
        transport, incoming = self.transport, self._incoming
        incoming.stop()
        if transport is None or transport.is_closing():
            return
        if incoming.half_closed or not transport.can_write_eof():
            transport.close()
            return
        end_sending(transport)
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()
        self._time_limits.linger()

    def refuse_head(self) -> None:
        """Answers 503, unless a response is still owed: the client would take the 503 for that
        response."""
        incoming = self._incoming
        if incoming.current is None and not incoming.waiting:
            self.write(HEADS_FULL)
            self.end()
            return
        incoming.stop()
        self.reset()

    def eof_received(self) -> bool:
        """Keeps the connection if a response is still owed to a client that may wait for it."""
        self._incoming.half_closed = True
        return self._time_limits.awaits_response()

    def _end_half_closed(self) -> None:
        """Ends a half-closed connection on which no response is owed any more."""
        transport = self.transport
        if transport is None or self.handed_over or self._time_limits.awaits_response():
            return
        transport.close()

    def hand_over(self) -> HandedOver:
        transport, incoming = self.transport, self._incoming
        if transport is None or transport.is_closing():
            raise _gone()
        self._time_limits.stop()
        self.handed_over = True
        data = bytes(incoming.unread)
        incoming.stop()
        # Reading may have been paused because much has arrived already.
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()
        return HandedOver(transport, data, incoming.half_closed, self.connection_lost, self._nested)

    def _nested(self, serve: Serve) -> "ServerConnection":
        return ServerConnection(self._service._replace(serve=serve), self._connections)


def _gone() -> ConnectionResetError:
    return ConnectionResetError("the client closed the connection")


class Connections:
    """A factory of connections to `service`, and those that are open."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.flow = service.flow
        self.open: set[ServerConnection] = set()

    def __call__(self) -> ServerConnection:
        """Return a connection that the port has accepted."""
        return ServerConnection(self.service, self.open, self.service.budget.slot())

    def above(self) -> ServerConnection:
        """Return a connection above a layer that the port has accepted, such as TLS."""
        return ServerConnection(self.service, self.open)

    def within(self, serve: Serve) -> ServerConnection:
        """Return a connection inside an existing one, such as a tunnel. `serve` answers its
        requests."""
        return ServerConnection(self.service._replace(serve=serve), self.open)

    def finish(self) -> list[asyncio.Future[None]]:
        """Ends idle connections at once, and the others after the request that is being answered.
        Each future is done when its connection has ended."""
        return [connection.finish() for connection in list(self.open)]

    async def close(self, seconds: float) -> None:
        """Lets requests finish for `seconds`, then cuts them off."""
        closing = self.finish()
        if closing:
            await asyncio.wait(closing, timeout=seconds)
        await asyncio.gather(*(each.cut() for each in list(self.open)))
