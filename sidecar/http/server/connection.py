"""One connection from a client, and the requests that arrive on it, answered one after the other.

Each request is served by one coroutine, which runs at once, in the turn of the event loop in which
the request arrived, and becomes a task where it first waits (`platform/eager.py`).

    malformed requests    reach the service like any other
    half-closed clients   still get their response
    clients that leave    cancel their request, or not, as the service says
    refused tunnels       nothing that follows a refused CONNECT or Upgrade is read

Knows connections and messages. Knows nothing of what a request asks for. Over 250 lines, because
the states of one connection belong together.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from functools import partial
from typing import cast

from sidecar.http.messages.body import BodyBrokenOff, BodyStream
from sidecar.http.messages.request_parser import HTTP_11, BrokenFraming, RequestParser
from sidecar.http.server.head_cache import LONGEST, KnownHead
from sidecar.http.server.request import HandedOver, HttpRequest, Serve
from sidecar.http.server.response import Answer, Complete, Deferred, Response, ResponseSent
from sidecar.http.server.service import Service
from sidecar.platform import eager

log = logging.getLogger(__name__)

_PIECE = 64 * 1024
"""The most bytes that are parsed before what they contain is served."""

# The system's `struct linger`: switched on, with a time of 0 seconds.
_RESET = struct.pack("ii", 1, 0)


class ServerConnection(asyncio.Protocol):
    """One client's connection to `service`. `connections` holds it while it is open."""

    __slots__ = (
        "_closed",
        "_connections",
        "_draining",
        "_flow",
        "_grace",
        "_half_close_allowed",
        "_half_closed",
        "_handed_over",
        "_idle_since",
        "_idle_timer",
        "_last",
        "_limits",
        "_loop",
        "_parser",
        "_reading_paused",
        "_reading_stopped",
        "_request",
        "_responding",
        "_response_started",
        "_service",
        "_serving",
        "_task",
        "_unread",
        "_waiting",
        "congested",
        "transport",
    )

    def __init__(self, service: Service, connections: "set[ServerConnection]") -> None:
        self._service = service
        self._connections = connections
        self._flow = service.flow
        self._limits = service.limits
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(
            service.limits.head, self._new_request, self._new_body, self._received
        )
        self.transport: asyncio.Transport | None = None
        self._unread = bytearray()
        """What has arrived and was not parsed yet."""
        self._waiting: deque[HttpRequest] = deque()
        """Requests behind the one that is being answered."""
        self._request: HttpRequest | None = None
        """The request that is being answered."""
        self._task: asyncio.Task[None] | None = None
        self._serving = False
        self._closed: asyncio.Future[None] | None = None
        """Done when the connection has ended; set once the sidecar stops."""
        self._last = False
        """Whether nothing after the current request is read: it may not be HTTP."""
        self._reading_stopped = False
        """Whether nothing at all is read any more."""
        self._reading_paused = False
        self._half_closed = False
        self._half_close_allowed = True
        self._response_started = False
        self._grace: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self.congested = False
        self._draining: asyncio.Future[None] | None = None
        self._handed_over = False

    # -------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._idle_since = self._loop.time()
        self._idle_timer = self._loop.call_later(self._limits.idle_seconds, self._check_idle)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.transport = None
        self._reading_stopped = True
        self._connections.discard(self)
        self._cancel_grace()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._unread.clear()
        self._waiting.clear()
        request = self._request
        if request is not None and not request.body.settled:
            log.info("a client hung up in the middle of its request body")
            request.body.fail(BodyBrokenOff())
        if self._draining is not None and not self._draining.done():
            self._draining.set_exception(_gone())
        if self._task is not None and self._service.cancels:
            self._task.cancel()
        if self._closed is not None:
            self._closed.set_result(None)

    def finish(self) -> asyncio.Future[None]:
        """Ends the connection after the request that is being answered. The future is done when it
        has ended."""
        if self._closed is None:
            self._closed = self._loop.create_future()
        if self._request is None and self.transport is not None:
            self.transport.close()
        return self._closed

    async def cut(self) -> None:
        """Ends the connection at once, and the task that answers on it."""
        task = self._task
        if self.transport is not None:
            self.transport.abort()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,))

    def reset(self) -> None:
        transport = self.transport
        if transport is not None:
            sock = transport.get_extra_info("socket")
            if sock is not None:
                # A linger time of 0 makes the system send RST instead of FIN.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()

    @property
    def ending(self) -> bool:
        """Whether the request that is being answered is the last one: the client has half-closed
        and sent no other, the sidecar is stopping, or what follows may not be HTTP."""
        if self._closed is not None or self._last or self._reading_stopped:
            return True
        if not self._waiting and (self._parser.failed or (self._half_closed and not self._unread)):
            return True
        # Bytes that follow an offer to upgrade before its response may belong to the protocol that
        # was offered (RFC 9931).
        request = self._request
        return request is not None and request.offers_upgrade and bool(self._unread)

    def _check_idle(self) -> None:
        # One timer serves all requests: if it fires too early, it is set again.
        left = self._idle_since + self._limits.idle_seconds - self._loop.time()
        if self._request is not None:
            left = self._limits.idle_seconds
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._check_idle)
        elif self.transport is not None:
            self._idle_timer = None
            if self.congested or self.transport.is_closing():
                # A close waits until the client has taken what was written: it may never do.
                self.transport.abort()
            else:
                self.transport.close()

    # ------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        self._flow.received += len(data)
        if self._reading_stopped:
            return
        self._unread += data
        self._read_on()

    def _read_on(self) -> None:
        """Parses what has arrived as far as nothing has to wait."""
        while self._unread and not self._held():
            piece = bytes(self._unread[:_PIECE])
            del self._unread[:_PIECE]
            rest = self._parse(piece)
            # Before anything is served: a request that offers another protocol must see that
            # something follows it.
            if rest:
                self._unread[:0] = rest
            self._serve()
        self._adjust_reading()
        if self._half_closed:
            self._end_half_closed()

    def _parse(self, piece: bytes) -> bytes | None:
        """Like `RequestParser.feed`, except that a whole request with a known head needs no
        parser."""
        parser = self._parser
        if not parser.at_boundary():
            return parser.feed(piece)
        end = piece.find(b"\r\n\r\n") + 4
        if not 4 <= end <= LONGEST:
            return parser.feed(piece)
        raw_head = piece[:end]
        known = self._service.heads.find(raw_head)
        if known is not None and len(piece) == end + known.length:
            request = HttpRequest(self)
            request.method, target, length, request.head = known
            request.target = raw_head[target].decode("ascii")
            request.known, request.raw_head = True, raw_head
            if length:
                request.body = BodyStream.of(piece[end:])
            self._waiting.append(request)
            return None
        before = len(self._waiting)
        rest = parser.feed(piece)
        if len(self._waiting) == before + 1:
            request = self._waiting[-1]
            # Exactly one request, without a chunked body: its length is part of its head.
            if (
                len(piece) == end + request.body.total_bytes
                and parser.at_boundary()
                and not (request.should_close or request.offers_upgrade)
                and request.version == HTTP_11
            ):
                request.raw_head = raw_head
        return rest

    def remember(self, head: bytes, known: KnownHead) -> None:
        self._service.heads.add(head, known)

    def _held(self) -> bool:
        """Whether what arrives has to wait: other requests do, a body's reader is slow, or it may
        not be a request."""
        if self._waiting or self._reading_stopped or self._parser.failed:
            return True
        request = self._request
        if request is None:
            return self._last
        body = request.body
        return body.full or (body.settled and (request.offers_upgrade or self._last))

    def _adjust_reading(self) -> None:
        transport = self.transport
        if transport is None or self._handed_over:
            return
        request = self._request
        full = len(self._unread) > self._limits.buffer_bytes
        full = full or (request is not None and request.body.full)
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

    def stop_reading(self) -> None:
        self._last = True

    def _new_request(self) -> HttpRequest:
        return HttpRequest(self)

    def _new_body(self) -> BodyStream:
        return BodyStream(self._limits.buffer_bytes, self)

    def _received(self, request: HttpRequest) -> None:
        self._waiting.append(request)

    # ----------------------------------------------------------------------------- answering

    def _serve(self) -> None:
        """Serves the requests that wait, until one of them has to wait itself."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._waiting and self._request is None and not self.congested:
                self._request = request = self._waiting.popleft()
                try:
                    eager.start(self._process(request), self._loop, self._suspended)
                except asyncio.CancelledError:
                    # What it waited for had been cancelled elsewhere.
                    self._request = None
                    self.reset()
        finally:
            self._serving = False

    async def _process(self, request: HttpRequest) -> None:
        try:
            answer = await self._service.serve(request)
        except Exception as error:  # noqa: BLE001  # `_failed` logs it
            self._failed(request, error)
        else:
            self._answer(answer)

    def _suspended(self, task: "asyncio.Task[None]") -> None:
        self._task = task
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task is self._task:
            self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a connection failed", exc_info=error)
        if error is not None or task.cancelled():
            # The client is gone, or its time is up, or it must not wait for an answer for ever.
            self._request = None
            self.reset()

    def _failed(self, request: HttpRequest, error: Exception) -> None:
        if isinstance(error, ConnectionError):
            # The client is gone; its request and the decision are in the log.
            self._answer(ResponseSent(keep_alive=False))
            return
        # A bug of ours: the details go to the log, and none of them to the client.
        log.error("a request failed", exc_info=error)
        if request.response_started:
            self._answer(ResponseSent(keep_alive=False))
        else:
            self._answer(self._service.failed(request))

    def _answer(self, answer: Answer) -> None:
        """Writes the answer to the request, if that is still to be done, and ends the request."""
        request = self._request
        assert request is not None
        if isinstance(answer, Deferred):
            answer.durable.add_done_callback(partial(self._answer_recorded, answer.complete))
            return
        if isinstance(answer, ResponseSent):
            keep = answer.keep_alive
        else:
            keep = request.keep_alive and not answer.close
            transport = self.transport
            if transport is not None and not transport.is_closing():
                data = answer.encode(
                    keep_alive=keep,
                    omit_body=request.method == "HEAD",
                    http10=request.http10,
                )
                self._flow.sent += len(data)
                transport.write(data)
                self.response_started()
                request.response_started = True
        if request.body.settled or self._handed_over:
            self._finished(keep=keep and request.body.failure is None)
        else:
            # A refused request may still be sending. Its client couldn't read the refusal
            # otherwise: closing a socket with unread bytes resets the connection.
            self._suspended(self._loop.create_task(self._linger(request, keep=keep)))

    def _answer_recorded(self, complete: Complete, durable: "asyncio.Future[None]") -> None:
        request = self._request
        assert request is not None
        response: Response
        try:
            # INVARIANT: a cancelled wait raises here, before anything is made of the decision: its
            # record may not be on disk.
            response = complete(durable.exception())
        except (Exception, asyncio.CancelledError) as error:
            log.error("a request failed", exc_info=error)
            response = self._service.failed(request)
        self._answer(response)

    async def _linger(self, request: HttpRequest, *, keep: bool) -> None:
        """Discards what a refused request still sends."""
        body, loop = request.body, self._loop
        end = loop.time() + self._limits.lingering_seconds
        try:
            while not body.taken:
                await body.next(max(0.0, end - loop.time()))
        except (TimeoutError, BrokenFraming, ConnectionError):
            keep = False
        self._finished(keep=keep)

    def _finished(self, *, keep: bool) -> None:
        """Ends the request, and begins the next one."""
        if self._handed_over:
            self._request = None
            return
        keep = keep and not self.ending
        request, self._request = self._request, None
        self._task = None
        self._idle_since = self._loop.time()
        self._cancel_grace()
        self._response_started = False
        self._half_close_allowed = True
        transport = self.transport
        if not keep:
            self._reading_stopped = True
            self._unread.clear()
            self._waiting.clear()
            if transport is not None:
                transport.close()
            return
        if request is not None and request.offers_upgrade:
            # The offer was ignored (RFC 9110 section 7.8), and nothing has followed it.
            self._parser.reset()
        if (self._waiting or self._unread or self._half_closed) and not self._serving:
            # Not at once: the next request must not run in the task of this one.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._serve()
        self._read_on()

    # -------------------------------------------------------------------------------- writing

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            raise _gone()
        self._flow.sent += len(data)
        transport.write(data)

    def response_started(self) -> None:
        # From now on a failing write shows that the client is gone, so no timer is needed.
        self._response_started = True
        self._cancel_grace()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._draining is not None and not self._draining.done():
            self._draining.set_result(None)
        # Responses to a client that doesn't read must not pile up in memory.
        if self._request is None:
            self._go_on()

    async def drain(self) -> None:
        """Cuts off a client that takes nothing for `write_seconds`, and raises
        `ConnectionResetError`: it would hold its connection to the data source forever."""
        if self.transport is None:
            raise _gone()
        if not self.congested:
            return
        self._draining = draining = self._loop.create_future()
        timer = self._loop.call_later(self._limits.write_seconds, self._cut_off)
        try:
            await draining
        finally:
            timer.cancel()
            self._draining = None

    def _cut_off(self) -> None:
        log.info("a client took nothing of its response for %g s", self._limits.write_seconds)
        if self.transport is not None:
            self.transport.abort()

    # -------------------------------------------------------------------------------- the end

    def end_on_client_close(self) -> None:
        self._half_close_allowed = False

    def eof_received(self) -> bool:
        """Keeps the connection if a response is still owed: a client may close its sending side and
        wait for it. A client that is gone looks the same until something is written to it, so the
        wait is limited."""
        self._half_closed = True
        return self._awaits_response()

    def _awaits_response(self) -> bool:
        request = self._request
        if self._unread and request is not None:
            return True  # it may be what ends the body, or another request
        bodies_ended = all(each.body.settled for each in self._waiting)
        if request is None:
            owed = bool(self._waiting) and bodies_ended
        else:
            owed = request.body.settled and bodies_ended and self._half_close_allowed
        if owed and not self._response_started and self._grace is None:
            seconds = self._limits.half_close_seconds
            self._grace = self._loop.call_later(seconds, self._abandon)
        return owed

    def _end_half_closed(self) -> None:
        """Ends a half-closed connection that owes nothing any more."""
        transport = self.transport
        if transport is None or self._handed_over:
            return
        if not self._awaits_response():
            transport.close()

    def _cancel_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _abandon(self) -> None:
        self._grace = None
        if self.transport is not None:
            self.transport.abort()

    def hand_over(self) -> HandedOver:
        transport = self.transport
        if transport is None or transport.is_closing():
            raise _gone()
        self._cancel_grace()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._handed_over = self._reading_stopped = True
        data = bytes(self._unread)
        self._unread.clear()
        # Reading may have been paused because much has arrived already.
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()
        return HandedOver(transport, data, self._half_closed, self.connection_lost, self._nested)

    def _nested(self, serve: Serve) -> "ServerConnection":
        return ServerConnection(self._service._replace(serve=serve), self._connections)


def _gone() -> ConnectionResetError:
    return ConnectionResetError("the client closed the connection")
