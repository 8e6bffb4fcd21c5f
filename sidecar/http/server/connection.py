"""Serves one connection from a client, from its first byte to its end: moves its bytes, has its
requests answered in order, and ends it.

    ServerConnection    owns the others
      Http1             says what may come next
      Responder         has the service answer
      TimeLimits        end what takes too long
      Http2Connection   in place of these three, if the first bytes are those of HTTP/2
    HttpRequest         acts on its connection, by `ClientConnection` alone

    malformed requests    reach the service like any other
    half-closed clients   are gone, or still get their response, as the limits say
    clients that leave    cancel their request, or not, as the service says
    refused tunnels       nothing that follows a refused CONNECT or Upgrade is read

Knows nothing of what a request asks for.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from policies.ground.connection_budget import HEADS_FULL, Slot
from sidecar.http.http2.session import PREFACE
from sidecar.http.messages.body import BodyOmitted, BodyStream
from sidecar.http.messages.request_parser import BrokenFraming
from sidecar.http.server.http1 import PIECE, SWITCHED, Http1
from sidecar.http.server.http2_connection import Http2Connection
from sidecar.http.server.request import (
    HandedOver,
    HttpRequest,
    Response,
    ResponseSent,
    Serve,
    Service,
)
from sidecar.http.server.responder import Responder
from sidecar.http.server.time_limits import TimeLimits
from sidecar.http.tcp_reset import end_sending, reset

log = logging.getLogger(__name__)


class ServerConnection(asyncio.Protocol):
    """One connection from a client, whose requests `service` answers. While it is open, it is in
    the set `connections`, and takes `slot` of the budget for connections; `slot` is None inside a
    connection that has one already."""

    __slots__ = (
        "_closed", "_connections", "_http1", "_http2", "_loop", "_parse", "_reading_paused",
        "_responder", "_service", "_serving", "_slot", "_time_limits", "congested", "heads",
        "transport",
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
        self.heads = service.heads
        limits = service.limits
        self._http1 = http1 = Http1(
            limits,
            service.heads,
            service.budget.head(),
            partial(HttpRequest, self),
            partial(BodyStream, limits.buffer_bytes, self),
        )
        self._http2: Http2Connection | None = None
        self._parse: Callable[[bytes], bool] = partial(self._parse_first, b"")
        """The function that parses a piece of bytes, in the protocol that the first bytes show. It
        returns False if the budget has no room for the head that is arriving."""
        self._time_limits = TimeLimits(self, http1, limits, loop)
        self._responder = Responder(service, loop, self._respond, self._break_off)
        self._reading_paused = False
        self._serving = False
        """True while `_serve` runs."""
        self._closed: asyncio.Future[None] | None = None
        """A future that is done when the connection has ended; None until the sidecar stops."""

    # ----------------------------------------------------------------------- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        if self._slot is not None and not self._slot.take(self.transport.abort):
            self._http1.close()
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
        if self._http2 is not None:
            self._http2.lost()
        if self._http1.lose():
            log.info("a client hung up in the middle of its request body")
        self._time_limits.writable(_gone())
        task, request = self._responder.task, self._http1.current
        if request is not None and request.on_left is not None:
            for on_left in request.on_left:
                on_left()
        if task is not None and self._service.cancels:
            task.cancel()
        if self._closed is not None:
            self._closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._service.flow.received += len(data)
        http1 = self._http1
        if self._http2 is not None:
            self._http2.receive(data)
            return
        if http1.unread or len(data) > PIECE or http1.holds_back():
            http1.hold(data)
        else:
            if not self._parse(data):
                self._refuse_head()
            self._serve()
        request = http1.current
        full = request is not None and request.body.full
        if full or http1.unread or self._reading_paused:
            self._read_on()

    def eof_received(self) -> bool:
        """Keep the connection open if the client, which closed its sending side, may still wait for
        a response."""
        self._http1.half_closed = True
        if self._http2 is not None:
            return self._http2.client_ended()
        return self._time_limits.awaits_response()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._http2 is not None:
            self._http2.writable()
            return
        self._time_limits.writable()
        # Responses to a client that doesn't read must not pile up in memory.
        if self._http1.current is None:
            self._read_on()

    # ------------------------------------------------------------------------------------- reading

    def _read_on(self) -> None:
        """Parse and serve requests until the next bytes have to wait. Then close the connection if
        the client has closed its sending side and waits for no response any more."""
        http1 = self._http1
        self._serve()
        while http1.unread and not http1.holds_back():
            if not self._parse(http1.next_piece()):
                self._refuse_head()
            self._serve()
        self._adjust_reading()
        transport = self.transport
        if transport is None or http1.state is SWITCHED or not http1.half_closed:
            return
        if not self._time_limits.awaits_response():
            transport.close()

    def _parse_first(self, begun: bytes, piece: bytes) -> bool:
        """Parse the first bytes of the connection: `begun` is the beginning of HTTP/2's preface,
        and has not been parsed."""
        begun += piece
        if PREFACE.startswith(begun) and len(begun) < len(PREFACE):
            self._parse = partial(self._parse_first, begun)
            return True
        if not begun.startswith(PREFACE):
            self._parse = self._http1.parse
            return self._http1.parse(begun)
        transport = self.transport
        assert transport is not None
        self._time_limits.stop()
        scheme = b"https" if transport.get_extra_info("ssl_object") else b"http"
        self._http2 = Http2Connection(self, self._service, self._loop, scheme)
        self._parse = self._http2.receive
        return self._http2.receive(begun)

    def _adjust_reading(self) -> None:
        transport, http1 = self.transport, self._http1
        if transport is None or http1.state is SWITCHED:
            return
        request = http1.current
        full = len(http1.unread) > self._service.limits.buffer_bytes
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
        self._loop.call_soon(self._read_on)

    # ------------------------------------------------------------------------------------ requests

    def _serve(self) -> None:
        """Serve the waiting requests, until one of them has to wait for something else."""
        if self._serving:
            return
        http1, responder = self._http1, self._responder
        self._serving = True
        try:
            while http1.waiting and http1.current is None and not self.congested:
                responder.run(responder.answer(http1.begin()))
        finally:
            self._serving = False

    def _break_off(self, error: BaseException) -> None:
        """Reset the connection because its current request can't be answered."""
        # If it was cancelled, its client is gone, its time is up, or what it waited for was
        # cancelled.
        if not isinstance(error, asyncio.CancelledError):
            log.error("a connection failed", exc_info=error)
        self._http1.done()
        self._http1.close()
        self.reset()

    def _respond(self, request: HttpRequest, answer: Response | ResponseSent) -> None:
        """Write the response, unless it has been written already, and end the request."""
        omits_body = request.may_omit_body
        if isinstance(answer, ResponseSent):
            keep = answer.keep_alive and not (omits_body or self._http1.ending)
        else:
            keep = not (request.should_close or omits_body or answer.close or self._http1.ending)
            transport = self.transport
            if transport is not None and not transport.is_closing():
                data = _encoded(answer, request, keep_alive=keep)
                self._service.flow.sent += len(data)
                transport.write(data)
                request.response_started = True
        body = request.body
        if omits_body:
            log.info("a connection is closed: %s", BodyOmitted.__doc__)
            body.fail(BodyOmitted())
        if body.complete or body.failure is not None or self._http1.state is SWITCHED:
            self._end_request(request, keep=keep)
        else:
            # A refused request may still be sending. Its client couldn't read the refusal
            # otherwise: closing a socket with unread bytes resets the connection.
            self._http1.discard()
            self._responder.run(self._discard_body(request, keep=keep))

    async def _discard_body(self, request: HttpRequest, *, keep: bool) -> None:
        body, loop = request.body, self._loop
        end = loop.time() + self._service.limits.lingering_seconds
        try:
            while not body.taken:
                await body.next(max(0.0, end - loop.time()))
        except (TimeoutError, BrokenFraming, ConnectionError) as error:
            body.fail(error)
        self._end_request(request, keep=keep and not self._http1.ending)

    def _end_request(self, request: HttpRequest, *, keep: bool) -> None:
        """End the current request. Then continue with the next one if the connection is to `keep`,
        otherwise end the connection."""
        http1 = self._http1
        http1.done()
        if http1.state is SWITCHED:
            return
        self._time_limits.request_ended()
        if not keep or request.body.failure is not None:
            self.end()
            return
        if request.offers_upgrade:
            # The offer was ignored (RFC 9110 section 7.8), and nothing has followed it.
            http1.restart()
        if not self._serving and (http1.waiting or http1.unread or http1.half_closed):
            # Not at once: the next request must not run in the task of this one.
            self._loop.call_soon(self._read_on)

    # -------------------------------------------------------------------- what a request does here

    @property
    def ending(self) -> bool:
        return self._http1.ending

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            raise _gone()
        self._service.flow.sent += len(data)
        transport.write(data)

    async def drain(self) -> None:
        if self.transport is None:
            raise _gone()
        if self.congested:
            await self._time_limits.until_writable()

    def watch(self) -> None:
        self._time_limits.watch()

    def stop_reading(self) -> None:
        self._http1.last = True

    def reset(self) -> None:
        if self.transport is not None:
            reset(self.transport)

    def hand_over(self) -> HandedOver:
        transport, http1 = self.transport, self._http1
        if transport is None or transport.is_closing():
            raise _gone()
        self._time_limits.stop()
        data = http1.switch()
        # Reading may have been paused because much has arrived already.
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()
        return HandedOver(transport, data, http1.half_closed, self.connection_lost, self._nested)

    def _nested(self, serve: Serve) -> "ServerConnection":
        return ServerConnection(self._service._replace(serve=serve), self._connections)

    # ------------------------------------------------------------------------------------- the end

    def finish(self) -> asyncio.Future[None]:
        """End the connection, after its current request if there is one. Returns a future that is
        done when the connection has ended."""
        if self._closed is None:
            self._closed = self._loop.create_future()
        self._http1.last = True
        if self._http2 is not None:
            self._http2.finish()
        elif self._http1.current is None and self.transport is not None:
            self.transport.close()
        return self._closed

    async def cut(self) -> None:
        """End the connection at once, and cancel the tasks that answer its requests."""
        tasks = [] if self._responder.task is None else [self._responder.task]
        if self._http2 is not None:
            tasks = self._http2.tasks()
        if self.transport is not None:
            self.transport.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def end(self) -> None:
        """End the connection once the written bytes are sent. Bytes that the client still sends are
        discarded: a socket that is closed with unread bytes resets the connection, and its client
        could lose the response (RFC 9112 section 9.6), or, within TLS, the alert that follows the
        response."""
        transport, http1 = self.transport, self._http1
        http1.drain()
        if transport is None or transport.is_closing():
            return
        if http1.half_closed or not transport.can_write_eof():
            transport.close()
            return
        end_sending(transport)
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()
        self._time_limits.linger()

    def _refuse_head(self) -> None:
        """Refuse a head for which the budget has no room, with a 503 and the end of the connection.
        If another response is still owed, reset the connection instead: the client would take the
        503 for that response."""
        http1 = self._http1
        if http1.current is None and not http1.waiting:
            self.write(HEADS_FULL)
            self.end()
            return
        http1.close()
        self.reset()


def _gone() -> ConnectionResetError:
    return ConnectionResetError("the client closed the connection")


def _encoded(response: Response, request: HttpRequest, *, keep_alive: bool) -> bytes:
    omit_body = request.method == "HEAD"
    return response.encode(keep_alive=keep_alive, omit_body=omit_body, http10=request.http10)
