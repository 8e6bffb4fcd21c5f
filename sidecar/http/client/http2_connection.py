"""Carries requests to a server over HTTP/2, many at once on each connection.

    SharedConnection     its frames, limits, streams and end
      UpstreamStream     one request and its response, in the place of an `UpstreamConnection`

A slow reader of a response slows its own stream alone: the server gets credit for the bytes that
were taken, not for those that arrived. What a server sends is counted before it is read, and a
server that sends more of a cheap kind than any use explains loses the connection.

A server may stop while its host stays up, so that TCP notices nothing. A request that waits for its
response then does so until its agent leaves, as over HTTP/1.1, since the server may as well be
slow. But others must not join it, and some signs show that the server is not merely slow:

    SILENT_SECONDS          nothing arrives for a request, a frame does not end, or the connection
                            has no credit for bodies: until that changes, new requests get another
    limits.idle_seconds     a frame does not end: the connection is broken off
    CREDIT_SECONDS          several bodies wait for the connection's credit, and none comes:
                            likewise

No PING asks the server: those of gRPC answer few of them (`tcp_keepalive.py`), and one that works
on a request without serving its connection meanwhile answers none.

Knows frames, and where a response ends. Knows nothing of what is sent.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from sidecar.http.client.dialler import ClientLimits, DialledProtocol
from sidecar.http.client.http2_stream import UpstreamStream
from sidecar.http.client.tcp_keepalive import keep_alive
from sidecar.http.http2 import session as h2
from sidecar.http.http2.frame_limits import Flood, FrameLimits
from sidecar.http.http2.session import Session, SessionFailed
from sidecar.http.messages.body import ConnectionLost
from sidecar.http.messages.response_parser import BadResponse

log = logging.getLogger(__name__)

_WRITE_BYTES = 64 * 1024
"""The bytes that are handed to the transport at once."""
_HTTP_1 = b"HTTP/1."
SILENT_SECONDS = 5.0
"""A slow server costs another connection each time that it is silent for so long; a stopped one
gets the requests of so long."""
CREDIT_SECONDS = 30.0
"""A server that reads a body slowly may hold back the credit of the connection. One body has more
time (its sender decides); of several, the others must not wait for it, or for credit that the
server has lost count of."""


class NotHttp2(OSError):
    """the server does not speak HTTP/2"""


class Keeper(Protocol):
    """The part of a pool that its shared connections use."""

    def has_room(self, connection: "SharedConnection") -> None:
        """Note that a request of `connection` has ended."""

    def lost(self, connection: "SharedConnection") -> None:
        """Note that `connection` has ended."""


class SharedConnection(DialledProtocol):
    """A connection to a server, which many requests use at once. `keeper` is its pool."""

    def __init__(self, limits: ClientLimits, keeper: Keeper) -> None:
        self.limits = limits
        self._keeper = keeper
        self._transport: asyncio.Transport | None = None
        self.loop = loop = asyncio.get_running_loop()
        self.session = Session(client=True)
        self._frames = FrameLimits(loop.time, preface=False)
        self._opened: asyncio.Future[None] = loop.create_future()
        """Done when the server's first SETTINGS have arrived."""
        self.streams: dict[int, UpstreamStream] = {}
        self._taken = 0
        """The requests that have the connection, whether they have begun or not."""
        self.draining: set[UpstreamStream] = set()
        """The streams whose writer waits."""
        self.failure: Exception | None = None
        """The reason why the connection has ended; None while it is usable."""
        self.ending = False
        """True once no request may begin any more."""
        self.unused = False
        """True if the connection has been idle since before the pool's last sweep."""
        self.congested = False
        self.received = 0
        """The number of times that bytes have arrived."""
        self._asked_at: float | None = None
        """The time when a request began after which nothing has arrived, the first of those. Kept
        when it is broken off: agents that soon give up would each meet a stopped server anew."""
        self._spent_since: float | None = None
        """The time since which the connection has got no credit and has none left."""
        self._flushing = False
        self._steps: dict[type, Callable[..., None]] = {
            h2.ResponseReceived: self._respond,
            h2.InformationalResponseReceived: self._interim,
            h2.DataReceived: self._data,
            h2.TrailersReceived: self._trailers,
            h2.StreamReset: self._reset,
            h2.StreamClosed: self._closed,
            h2.WindowUpdated: self._credited,
            h2.SettingsReceived: self._settings,
            h2.GoAwayReceived: self._going_away,
            h2.ConnectionClosed: self._ended,
        }

    # ----------------------------------------------------------------------- what the pool does

    async def opened(self) -> "SharedConnection":
        """Wait for the server's SETTINGS, which show that it speaks HTTP/2, and how many requests
        it takes at once. Raises `NotHttp2` and `ConnectionLost`."""
        await self._opened
        return self

    @property
    def has_room(self) -> bool:
        """True if another request may use the connection."""
        if self.ending or self.failure is not None or self._stalled:
            return False
        return self._taken < self.session.most_streams

    @property
    def _stalled(self) -> bool:
        """True if for `SILENT_SECONDS` the server has sent nothing since a request, has not ended a
        frame, or has taken no body."""
        since = (self._asked_at, self._frames.unfinished_since, self._spent_since)
        return any(each is not None and self.loop.time() - each > SILENT_SECONDS for each in since)

    @property
    def idle(self) -> bool:
        return not self._taken

    def take(self) -> UpstreamStream:
        """Return a stream for one request, which has to be ended with `rest` or `abort`."""
        self._taken += 1
        self.unused = False
        return UpstreamStream(self)

    def end(self) -> None:
        """Begin no other request, and end the connection with the last one."""
        self.ending = True
        self._end_if_done()

    def abort(self) -> None:
        self._fail(ConnectionLost("the connection was broken off"))

    def watch(self) -> None:
        """Break the connection off if a frame, or the head of a response, takes longer than
        `idle_seconds` from its first byte to its last, since nothing else can arrive meanwhile: a
        frame is 16 KiB at most, and no link is so slow. Also if several bodies wait for the
        connection's credit for `CREDIT_SECONDS`. To be called now and then."""
        now, seconds = self.loop.time(), self.limits.idle_seconds
        since, spent = self._frames.unfinished_since, self._spent_since
        if since is not None and now - since > seconds:
            self._fail(BadResponse(f"a frame of the server took longer than {seconds:g} s"))
        elif spent is not None and now - spent > CREDIT_SECONDS and self._bodies_waiting > 1:
            seconds = CREDIT_SECONDS
            self._fail(BadResponse(f"the server gave no credit for bodies for {seconds:g} s"))

    @property
    def _bodies_waiting(self) -> int:
        """The number of requests whose body is not sent yet as far as it has arrived."""
        return sum(self.session.queued(number) > 0 for number in self.streams)

    # --------------------------------------------------------------------- what its streams do

    def flush(self) -> None:
        """Write what is to be sent, as long as the transport takes it."""
        if self._flushing:
            return
        self._flushing = True
        try:
            while self._write_some():
                pass
        finally:
            self._flushing = False
        if not self.session.credit_spent:
            self._spent_since = None
        elif self._spent_since is None:
            self._spent_since = self.loop.time()
        for stream in list(self.draining):
            stream.go_on()
        self._end_if_done()

    def begun(self, stream: UpstreamStream, number: int) -> None:
        """Note that the request of `stream` has begun, under this number."""
        self.streams[number] = stream
        if self._asked_at is None:
            self._asked_at = self.loop.time()
        self._frames.allow_answers()

    def sent(self) -> None:
        """Note that a part of a request's body is to be sent, and send it."""
        self._frames.allow_answers()
        self.flush()

    def left(self) -> None:
        """Note that a request no longer uses the connection."""
        self._taken -= 1
        self._keeper.has_room(self)
        self._end_if_done()

    # -------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(self._transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return  # a transport may still deliver what it read before it was aborted
        if not self._opened.done() and data.startswith(_HTTP_1):
            self._fail(NotHttp2("the server answers in HTTP/1, and not in HTTP/2"))
            return
        self.received += 1
        self._asked_at = None
        failure: Flood | SessionFailed | None = None
        self._flushing = True  # all events first: what is written may cause others
        try:
            events = self.session.receive(self._frames.feed(data))
            for event in events:
                self._handle(event)
            self._frames.answered(sum(isinstance(event, _HEADS) for event in events))
        except (Flood, SessionFailed) as error:
            failure = error
        finally:
            self._flushing = False
        if isinstance(failure, Flood):
            self.session.terminate(h2.ENHANCE_YOUR_CALM, str(failure))
        self.flush()
        if failure is not None:
            self._fail(BadResponse(str(failure)))

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._fail(ConnectionLost("the server closed the connection"))
        self._transport = None

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self.flush()

    # --------------------------------------------------------------------------- the events

    def _handle(self, event: h2.Event) -> None:
        step = self._steps.get(type(event))
        if step is not None:
            step(event)

    def _respond(self, event: h2.ResponseReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.respond(event.headers, end=event.end_stream)

    def _interim(self, event: h2.InformationalResponseReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.count_interim(event.headers)

    def _data(self, event: h2.DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is None or not stream.receive(event.data, end=event.end_stream):
            # No reader will take it, but the connection's window must not shrink for that.
            self.session.credit(event.stream_id, len(event.data))

    def _trailers(self, event: h2.TrailersReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.end_body(event.headers)

    def _reset(self, event: h2.StreamReset) -> None:
        # `_closed` follows, and does what is to be done.
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.reset_by_server = True

    def _closed(self, event: h2.StreamClosed) -> None:
        stream = self.streams.pop(event.stream_id, None)
        if stream is not None:
            stream.closed(event.error_code)

    def _credited(self, event: h2.WindowUpdated) -> None:
        if not event.stream_id:
            self._spent_since = None  # `flush` follows, and sees whether there is any left

    def _settings(self, _event: h2.SettingsReceived) -> None:
        if not self._opened.done():
            self._opened.set_result(None)
        self._keeper.has_room(self)

    def _going_away(self, _event: h2.GoAwayReceived) -> None:
        # The library closes the streams that the server did not read.
        self.ending = True

    def _ended(self, event: h2.ConnectionClosed) -> None:
        if event.error_code:
            self._fail(ConnectionLost("the server ended the connection with an error"))

    # ---------------------------------------------------------------------------- the end

    def _write_some(self) -> bool:
        """Write a part of what is to be sent, and handle the events that this caused. Return
        whether there may be more."""
        transport, data = self._transport, b""
        if transport is not None and not (self.congested or transport.is_closing()):
            data = self.session.sendable(_WRITE_BYTES)
            if data:
                self._frames.sent(len(data))
                transport.write(data)
        # A stream closes once its last byte was sent.
        events = self.session.events()
        for event in events:
            self._handle(event)
        return bool(data or events)

    def _end_if_done(self) -> None:
        """End the connection if no request may begin, and none is under way; or if the library has
        ended it, because the server broke the protocol."""
        transport = self._transport
        if self.failure is not None or self._flushing:
            return
        if not self.ending or self._taken:
            if not self.session.wants_more:
                self._fail(BadResponse("the server broke the protocol of HTTP/2"))
            return
        self.failure = ConnectionLost("the connection was closed")
        self.session.terminate(h2.NO_ERROR, "")
        self.flush()
        if transport is not None:
            transport.close()
        self._keeper.lost(self)

    def _fail(self, error: Exception) -> None:
        """Break the connection off, with all requests on it."""
        if self.failure is not None:
            return
        self.failure = error
        if not self._opened.done():
            self._opened.set_exception(
                error if isinstance(error, OSError) else NotHttp2(str(error))
            )
            self._opened.exception()  # nothing may wait for it any more
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:
            stream.fail(error)
        if self._transport is not None:
            self._transport.abort()
        self._keeper.lost(self)


_HEADS = (h2.ResponseReceived, h2.InformationalResponseReceived, h2.TrailersReceived)
