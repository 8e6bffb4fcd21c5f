"""One request on a connection of HTTP/2, and its response: what a whole connection is in
HTTP/1.1."""

import asyncio
from typing import Protocol

from sidecar.http.client.dialler import ClientLimits
from sidecar.http.client.request import Origin, UpstreamRequest
from sidecar.http.grpc.status import is_grpc
from sidecar.http.headers import HOP_BY_HOP
from sidecar.http.http2 import session as h2
from sidecar.http.http2.credited_body import CreditedBody
from sidecar.http.http2.heads import lower_case
from sidecar.http.http2.session import Fields, Session
from sidecar.http.messages.body import ConnectionLost
from sidecar.http.messages.chunks import BadTrailers, CallTrailers, Trailers
from sidecar.http.messages.response_parser import (
    BadResponse,
    InterimResponses,
    ResponseMessage,
    read_fields,
)
from sidecar.platform.waiters import time_out, wake

_QUEUED_BYTES = 64 * 1024
"""The bytes of a request's body that wait for the server's credit before its writer has to wait
too."""
_WELCOME = (b"te", b"trailers")
_NOT_SENT = (HOP_BY_HOP - {b"trailer"}) | {b"host", b"content-length"}


class Streams(Protocol):
    """The part of a shared connection that its streams use."""

    session: Session
    loop: asyncio.AbstractEventLoop
    limits: ClientLimits
    draining: "set[UpstreamStream]"

    @property
    def congested(self) -> bool:
        """True while the transport has no room."""

    @property
    def failure(self) -> Exception | None:
        """The reason why the connection has ended; None while it is usable."""

    @property
    def received(self) -> int:
        """The number of times that bytes have arrived."""

    def begun(self, stream: "UpstreamStream", number: int) -> None:
        """Note that the request of `stream` has begun, under this number."""

    def sent(self) -> None:
        """Note that a part of a request's body is to be sent, and send it."""

    def left(self) -> None:
        """Note that a request no longer uses the connection."""

    def flush(self) -> None:
        """Write what is to be sent, as long as the transport takes it."""


class UpstreamStream:
    """A request on `connection`, as its sender sees a connection of its own."""

    __slots__ = (
        "_body", "_connection", "_drained", "_interim", "_left", "_number", "_received_before",
        "_refused", "_to_head", "_waiter", "arrived", "failure", "reset_by_server",
    )  # fmt: skip

    pooled = False
    """A stream takes no place in the pool: its connection does."""

    def __init__(self, connection: Streams) -> None:
        self._connection = connection
        self._number = 0
        """The stream's number; 0 while the request has not begun."""
        self._body: CreditedBody | None = None
        """The response's body, if it has not arrived with its head."""
        self._to_head = False
        self._left = False
        """True once the request no longer uses the connection."""
        self._interim: InterimResponses | None = None
        self.arrived: ResponseMessage | None = None
        """The response; None until its head has arrived."""
        self.failure: Exception | None = None
        """The reason why nothing more can be sent or received; None while it can."""
        self.reset_by_server = False
        self._refused = False
        """True if the server has not read the request."""
        self._received_before = 0
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    # ----------------------------------------------------------------------- what its sender does

    def begin(self, request: UpstreamRequest, origin: Origin) -> None:
        """Send a request, as far as its body has arrived. Raises `ConnectionLost`."""
        connection = self._connection
        if self.failure is not None or connection.failure is not None:
            self._refused = True
            raise ConnectionLost("the connection was closed")
        self._to_head = request.method == "HEAD"
        fields = _head(request, origin)
        session = connection.session
        self._received_before = connection.received
        try:
            self._number = number = session.request(fields, end=not request.has_body)
        except ConnectionResetError as error:
            self._refused = True
            raise ConnectionLost("the server takes no more requests") from error
        connection.begun(self, number)
        if request.stream is None and request.has_body:
            trailers = lower_case(request.trailer_lines)
            if request.body:
                session.data(number, request.body, end=not trailers)
            if trailers:
                session.end(number, trailers)
        connection.flush()

    def send_part(self, part: bytes) -> None:
        """Send a part of the body. Raises `ConnectionLost`."""
        self._check_open()
        self._connection.session.data(self._number, part)
        self._connection.sent()

    def finish_body(self, trailer_lines: bytes) -> None:
        """End the body, with its trailers, each with its line end. Raises `ConnectionLost`."""
        self._check_open()
        self._connection.session.end(self._number, lower_case(trailer_lines))
        self._connection.flush()

    @property
    def writing_paused(self) -> bool:
        """True while the server reads more slowly than the sidecar writes."""
        if self.failure is not None:
            return False
        connection = self._connection
        return connection.congested or connection.session.queued(self._number) > _QUEUED_BYTES

    async def drain(self, seconds: float) -> None:
        """Wait until the server has taken enough of the written bytes. Raises `TimeoutError` if
        that takes longer than `seconds`, and `ConnectionLost`."""
        connection = self._connection
        while self.writing_paused:
            self._drained = drained = connection.loop.create_future()
            connection.draining.add(self)
            timer = connection.loop.call_later(seconds, time_out, drained)
            try:
                await drained
            finally:
                timer.cancel()
                self._drained = None
                connection.draining.discard(self)
        if self.failure is not None:
            raise self.failure

    async def response(self) -> ResponseMessage:
        """Wait for the head of the response, and return the response. Raises `ConnectionLost` and
        `BadResponse`."""
        if self.arrived is None and self.failure is None:
            self._waiter = self._connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.arrived is not None:
            return self.arrived
        assert self.failure is not None
        raise self.failure

    @property
    def unheard(self) -> bool:
        """True if the server may have closed the connection before the request reached it."""
        nothing = self._connection.received == self._received_before
        return self.unread or (self._number > 1 and nothing)

    @property
    def unread(self) -> bool:
        """True if the server did not read the request, as far as it says."""
        return self._refused and self.arrived is None

    def detach(self) -> tuple[asyncio.Transport, bytes]:
        """Raise `ConnectionLost`: a stream can't switch to another protocol."""
        raise ConnectionLost("a stream of HTTP/2 can't switch protocols")

    def rest(self) -> bool:
        """End the request. Returns False: a stream carries no other request."""
        self.abort()
        return False

    def abort(self, why: str = "the request was broken off") -> None:
        """Break the request off unless it is over, and fail a response that is still arriving, with
        `why` as the reason."""
        connection = self._connection
        if self.failure is None and self._number:
            connection.session.reset(self._number, h2.CANCEL)
        self.fail(ConnectionLost(why))
        if self._body is not None:
            self._body.abandon()
        connection.flush()

    # ----------------------------------------------------------------- what the connection does

    def respond(self, fields: Fields, *, end: bool) -> None:
        """Take the head of the response, and with `end` all of it."""
        if self.failure is not None:
            return
        limits = self._connection.limits
        try:
            message = read_fields(fields, limits.head)
            if limits.trailers:
                message.trailer_head.announcement()
        except (BadResponse, BadTrailers) as error:
            self._reject(BadResponse(str(error)))
            return
        message.empty = message.empty or self._to_head
        if not (end or message.empty):
            message.body = self._body = CreditedBody(self._credit)
            if is_grpc(fields):
                message.trailer_head = CallTrailers()
                self._body.trailers = Trailers()
            elif limits.trailers:
                self._body.trailers = Trailers()
        self.arrived = message
        wake(self._waiter)

    def count_interim(self, fields: Fields) -> None:
        """Count an interim response, which is not relayed."""
        self._interim = self._interim or InterimResponses(self._connection.limits.head)
        try:
            self._interim.count(sum(len(name) + len(value) + 4 for name, value in fields))
        except BadResponse as error:
            self._reject(error)

    def receive(self, data: bytes, *, end: bool) -> bool:
        """Add bytes to the body, which `end` with them. Returns False if no reader will take
        them."""
        body = self._body
        if body is None or body.settled:
            return False
        body.append(data)
        if end:
            body.end()
        return True

    def end_body(self, fields: Fields) -> None:
        """End the body behind its trailers."""
        message, body = self.arrived, self._body
        if message is None or body is None or body.settled:
            return
        if body.trailers is not None:
            for name, value in fields:
                body.trailers.add(name, value)
            try:
                message.trailer_head.lines(body.trailers)
            except BadTrailers as error:
                self._reject(BadResponse(str(error)))
                return
        body.end()

    def closed(self, code: int) -> None:
        """Note that the stream is closed, with an error `code`: 0 without an error."""
        if code == h2.REFUSED_STREAM:
            self._refused = True
            self.fail(ConnectionLost("the server refused the request unread"))
        elif self.reset_by_server:
            self.fail(ConnectionLost(f"the server reset the stream, with code {code}"))
        elif code:
            self.fail(BadResponse("the response is not valid HTTP/2"))
        else:
            self.fail(ConnectionLost("the stream is closed"))

    def fail(self, error: Exception) -> None:
        """Note that nothing more can be sent or received. A response that has arrived is kept."""
        if self.failure is None:
            self.failure = error
            if self._body is not None:
                self._body.fail(error)
            wake(self._waiter)
            wake(self._drained)
        if not self._left:
            self._left = True
            self._connection.left()

    def go_on(self) -> None:
        """Let the writer write more if there is room."""
        if not self.writing_paused:
            wake(self._drained)

    # ----------------------------------------------------------------------------------------

    def _credit(self, count: int) -> None:
        self._connection.session.credit(self._number, count)
        self._connection.flush()

    def _reject(self, error: BadResponse) -> None:
        self._connection.session.reset(self._number, h2.PROTOCOL_ERROR)
        self.fail(error)
        if self._body is not None:
            self._body.abandon()

    def _check_open(self) -> None:
        if self.failure is not None:
            raise ConnectionLost("the stream is closed")


def _head(request: UpstreamRequest, origin: Origin) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request's head."""
    others = lower_case(request.lines)
    fields = [
        (b":method", request.method.encode()),
        (b":scheme", origin.scheme),
        (b":authority", origin.host.encode()),
        (b":path", f"{origin.prefix}{request.target}".encode()),
    ]
    # Only `trailers` is allowed (RFC 9113 section 8.2.2), and gRPC demands it.
    if is_grpc(others) or _WELCOME in others:
        fields.append(_WELCOME)
    fields += [field for field in others if field[0] not in _NOT_SENT]
    if request.length is not None:
        fields.append((b"content-length", request.length))
    return fields
