"""One request of an HTTP/2 connection: its body as it arrives, its response as frames, its end."""

import asyncio
from typing import Protocol

from sidecar.http.grpc.status import is_grpc, trailers_only
from sidecar.http.headers import ResponseHead
from sidecar.http.http2 import session as h2
from sidecar.http.http2.credited_body import CreditedBody
from sidecar.http.http2.heads import lower_case, response_fields
from sidecar.http.http2.session import Fields, Session
from sidecar.http.messages.body import BodyBrokenOff
from sidecar.http.messages.chunks import Trailers
from sidecar.http.messages.request_parser import HTTP_2
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.server.request import HandedOver, HttpRequest, Response, ResponseSent, Service
from sidecar.http.server.responder import Responder

_QUEUED_BYTES = 256 * 1024
"""The bytes of a response that wait for the client before its writer has to wait too."""
_ALL_QUEUED_BYTES = 1024 * 1024
"""The bytes of all responses of a connection that wait for the client before each writer may have
only its share waiting."""
_SHARE_BYTES = 16 * 1024
"""What each response may have waiting in any case, so that none stops another."""
_WHOLE_BYTES = 32 * 1024 * 1024
"""The bytes of a connection's responses that are handed over whole, until they are sent: eight of
the largest. A single one may have more."""


class Socket(Protocol):
    """The part of the connection below that HTTP/2 uses."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None once the connection is lost."""

    @property
    def congested(self) -> bool:
        """True while the transport has no room."""

    def write(self, data: bytes) -> None:
        """Write bytes. Raises `ConnectionResetError` if the client is gone."""

    def end(self) -> None:
        """End the connection once the written bytes are sent; what still arrives is dropped."""


class Streams(Protocol):
    """The part of an HTTP/2 connection that its streams use."""

    socket: Socket
    service: Service
    session: Session
    loop: asyncio.AbstractEventLoop
    whole_bytes: int
    """The bytes of responses that were, or will be, handed over whole, and are not sent yet."""

    def has(self, number: int) -> bool:
        """Return whether the stream is open."""

    def credit(self, number: int, count: int) -> None:
        """Let the client send `count` more bytes on a stream: as many were taken."""

    def flush(self) -> None:
        """Write what is to be sent, as long as the transport takes it."""

    def log_failure(self, error: BaseException) -> None:
        """Log that a stream is reset because of a bug of ours."""


class Http2Stream:
    """The stream `number` of `connection`, as its request sees a connection."""

    __slots__ = (
        "_connection", "_drained", "_responder", "_stalled_at", "_stalled_since", "_unwanted",
        "_wanted", "_whole", "_written", "broken", "ended", "number", "request", "reset_by_client",
    )  # fmt: skip

    def __init__(self, connection: Streams, number: int) -> None:
        self._connection = connection
        self.number = number
        self.request = request = Http2Request(self)
        request.version = HTTP_2
        self._responder = Responder(
            connection.service, connection.loop, self._respond, self._break_off
        )
        self._drained: asyncio.Future[None] | None = None
        self.ended = False
        """True once nothing more may be written: the response is whole, or the stream is reset."""
        self.broken = False
        """True if the stream ended before its response was whole."""
        self.reset_by_client = False
        self._unwanted = False
        """True once the response is whole, and the rest of the request is not wanted."""
        self._written = 0
        """The bytes of the response's body so far."""
        self._whole = self._wanted = 0
        """The part of the connection's `whole_bytes` that this response has, and that it waits
        for."""
        self._stalled_since, self._stalled_at = 0.0, -1

    # ------------------------------------------------------------------- what the connection does

    @property
    def task(self) -> "asyncio.Task[None] | None":
        return self._responder.task

    def serve(self) -> None:
        self._responder.run(self._responder.answer(self.request))

    def open_body(self) -> None:
        self.request.body = CreditedBody(self._credit)

    def receive(self, data: bytes) -> bool:
        """Add bytes to the body. Returns False if no reader will take them."""
        body = self.request.body
        if self.ended or not isinstance(body, CreditedBody) or body.settled:
            return False
        body.append(data)
        return True

    def refuse_body(self, error: Exception) -> None:
        """Fail the body, and drop what was not taken of it."""
        body = self.request.body
        if isinstance(body, CreditedBody):
            body.fail(error)
            body.abandon()

    def end_body(self, fields: Fields) -> None:
        """End the body behind its trailers."""
        body = self.request.body
        if isinstance(body, CreditedBody) and not body.settled:
            body.trailers = trailers = Trailers()
            for name, value in fields:
                trailers.add(name, value)
            body.end()

    def close(self, *, broken: bool) -> None:
        """Note that the stream is closed: `broken` if that was before all of the response was
        sent."""
        self.broken = broken = self.broken or broken or not self.ended
        self.ended = True
        self._hold(0)
        request, body = self.request, self.request.body
        if isinstance(body, CreditedBody):
            body.abandon()
        body.fail(BodyBrokenOff())
        if not broken:
            self._wake(None)
            return
        self._wake(_gone())
        for on_left in request.on_left or ():
            on_left()
        task = self._responder.task
        if task is not None and self._connection.service.cancels:
            task.cancel()

    def sent(self) -> None:
        """Go on after bytes of the connection were sent: let the writer write more, or end what is
        left of the request."""
        if self._drained is not None and not self.congested:
            self._wake(None)
        if self._unwanted and not self._connection.socket.congested:
            # RFC 9113 section 8.1: not before the response is sent, which the reset would end.
            session = self._connection.session
            if self._connection.has(self.number) and not session.waits(self.number):
                self._unwanted = False
                session.reset(self.number, h2.NO_ERROR)
                self._connection.flush()

    def cut(self) -> None:
        """Reset the stream, even if the client has not got all of a whole response."""
        if not self.broken:
            self.ended = self.broken = True
            self._wake(_gone())
            self._connection.session.reset(self.number, h2.CANCEL)
            self._connection.flush()

    def stalled(self, now: float, seconds: float) -> bool:
        """Return whether the client has taken nothing of the response for so long."""
        queued = self._queued()
        sent = self._written - queued
        # Even the end of a response may have to wait for the client's credit.
        waits = queued or (self.ended and self.request.body.settled)
        if not waits or sent != self._stalled_at:
            self._stalled_at, self._stalled_since = sent, now
            return False
        return now - self._stalled_since > seconds

    # ---------------------------------------------------------------------- what its request does

    @property
    def transport(self) -> asyncio.Transport | None:
        return None if self.ended else self._connection.socket.transport

    @property
    def heads(self) -> HeadCache:
        return self._connection.service.heads

    @property
    def ending(self) -> bool:
        return False

    @property
    def congested(self) -> bool:
        connection, wanted = self._connection, self._wanted
        if connection.socket.congested:
            return True
        if wanted and connection.whole_bytes + wanted > max(_WHOLE_BYTES, wanted):
            return True
        queued = self._queued()
        if queued <= _SHARE_BYTES:
            return False
        return queued > _QUEUED_BYTES or connection.session.all_queued > _ALL_QUEUED_BYTES

    async def drain(self) -> None:
        if self.broken:
            raise _gone()
        if self.congested:
            self._drained = self._connection.loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    async def room(self, count: int) -> None:
        """Wait until `count` bytes may be handed over whole, which count as waiting from now on."""
        self._wanted = count
        try:
            while self.congested:
                await self.drain()
        finally:
            self._wanted = 0
        self._check_open()
        self._hold(count)

    def _hold(self, count: int) -> None:
        self._connection.whole_bytes += count - self._whole
        self._whole = count

    def write(self, _data: bytes) -> None:
        raise ConnectionError("bytes of another protocol can't be written to a stream of HTTP/2")

    def watch(self) -> None:
        """Do nothing: a client that leaves, or resets the stream, is noticed at once."""

    def stop_reading(self) -> None:
        """Do nothing: what follows belongs to other streams, whatever this one is."""

    def reset(self) -> None:
        if not self.ended:
            self.cut()

    def hand_over(self) -> HandedOver:
        raise ConnectionError("a stream of HTTP/2 can't be handed to another protocol")

    def _credit(self, count: int) -> None:
        self._connection.credit(self.number, count)

    # -------------------------------------------------------------------------------- the response

    def begin(self, fields: Fields, *, end: bool) -> None:
        self._check_open()
        self._connection.session.respond(self.number, fields, end=end)
        self.ended = end
        self._connection.flush()

    def respond(self, fields: Fields, body: bytes, trailers: Fields) -> None:
        self._check_open()
        session = self._connection.session
        self._written += len(body)
        self._hold(len(body))
        if not (body or trailers):
            session.respond(self.number, fields, end=True)
        else:
            session.respond(self.number, fields, end=False)
            session.data(self.number, body, end=not trailers)
            if trailers:
                session.end(self.number, trailers)
        self.ended = True
        self._connection.flush()

    def send(self, part: bytes) -> None:
        self._check_open()
        self._written += len(part)
        self._connection.session.data(self.number, part)
        self._connection.flush()

    def end(self, trailers: Fields) -> None:
        self._check_open()
        self._connection.session.end(self.number, trailers)
        self.ended = True
        self._connection.flush()

    def interim(self, status: bytes) -> None:
        self._check_open()
        self._connection.session.interim(self.number, [(b":status", status)])
        self._connection.flush()

    def _respond(self, request: HttpRequest, answer: Response | ResponseSent) -> None:
        if not isinstance(answer, ResponseSent) and not self.ended:
            head, body = answer.split()
            failure = answer.failure() if is_grpc(request.fields) else None
            if failure is None:
                request.respond(head, b"" if request.method == "HEAD" else body)
            else:
                request.response_started = True
                self.respond(trailers_only(failure, response_fields(head)), b"", ())
        if not self.ended:
            # The response broke off, or there is none: its end must not look like a whole one.
            self.reset()
        elif not request.body.settled:
            request.body.fail(BodyBrokenOff())
            self._unwanted = True
            self.sent()

    def _break_off(self, error: BaseException) -> None:
        if not isinstance(error, (asyncio.CancelledError, ConnectionError)):
            self._connection.log_failure(error)
        self.reset()

    def _check_open(self) -> None:
        if self.ended or self._connection.socket.transport is None:
            raise _gone()

    def _queued(self) -> int:
        if not self._connection.has(self.number):
            return 0
        return self._connection.session.queued(self.number)

    def _wake(self, error: Exception | None) -> None:
        drained = self._drained
        if drained is not None and not drained.done():
            if error is None:
                drained.set_result(None)
            else:
                drained.set_exception(error)


class Http2Request(HttpRequest):
    """A request on a stream of HTTP/2. Its response is framed by the stream."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Http2Stream) -> None:
        super().__init__(stream)
        self._stream = stream

    @property
    def keep_alive(self) -> bool:
        return True

    @property
    def may_omit_body(self) -> bool:
        return False

    async def room(self, count: int) -> None:
        await self._stream.room(count)

    def begin(
        self,
        head: ResponseHead,
        *,
        empty: bool = False,
        last: bool = False,  # noqa: ARG002  # ends no connection
    ) -> None:
        self.response_started = self.kept = True
        self._stream.begin(response_fields(head), end=empty)

    def respond(self, head: ResponseHead, body: bytes, trailers: bytes = b"") -> None:
        self.response_started = self.kept = True
        self._stream.respond(response_fields(head), body, lower_case(trailers))

    def send(self, part: bytes) -> None:
        self._stream.send(part)

    def end(self, trailers: bytes = b"") -> None:
        self._stream.end(lower_case(trailers))

    def send_continue(self) -> None:
        if not self.body.complete and not self.body.total_bytes:
            self._stream.interim(b"100")
            self.continued = True


def _gone() -> ConnectionResetError:
    return ConnectionResetError("the client closed the stream")
