"""Serves the requests of one HTTP/2 connection, many at once: each stream is a request with a
responder of its own, and is answered by the same service as a request of HTTP/1.

    ServerConnection      owns the socket, and this once the first bytes are HTTP/2's
      Http2Connection     its limits, streams and end
        Turns             how much of what has arrived is handled at once
        Http2Stream       one request: its body, its response, its end

A slow client slows its own stream alone, and so does a slow reader of a body: the client gets
credit for the bytes that were taken, not for those that arrived.
"""

import asyncio
import logging
from collections.abc import Callable

from policies.ground.errors import Unavailable
from sidecar.http.http2 import session as h2
from sidecar.http.http2.frame_limits import Cause, Flood, FrameLimits
from sidecar.http.http2.heads import BadHead, TranslatedHead
from sidecar.http.http2.session import Session, SessionFailed
from sidecar.http.messages.body import BodyBrokenOff
from sidecar.http.server.http2_stream import Http2Stream, Socket
from sidecar.http.server.http2_turns import Turns
from sidecar.http.server.request import Service

log = logging.getLogger(__name__)

_WRITE_BYTES = 64 * 1024
"""The bytes that are handed to the transport at once."""
_SWEEP_SECONDS = 5.0
"""The seconds between two looks at what takes too long."""
_CREDIT_SECONDS = 60.0
"""The most seconds without progress for which a response waits for the client's credit."""
_ROUND_TRIP_SECONDS = 1.0
"""The most seconds for which a client may still begin requests after it was told of the end."""
_BODIES_FULL = "too many bytes of request bodies wait to be read; nothing was decided"
_FAULT = "the request is not valid HTTP/2"


class Http2Connection:
    """The streams of one connection above `socket`, whose requests `service` answers. `scheme` is
    the one that requests have to state: `https` above TLS, otherwise `http`."""

    def __init__(
        self, socket: Socket, service: Service, loop: asyncio.AbstractEventLoop, scheme: bytes
    ) -> None:
        self.socket = socket
        self.service = service
        self.loop = loop
        self.session = Session(streams=service.limits.streams)
        self.streams: dict[int, Http2Stream] = {}
        self._begun: list[Http2Stream] = []
        """The streams whose requests are served once the events at hand are handled."""
        self._schemes = (b"http", b"https") if service.any_scheme else (scheme,)
        self.whole_bytes = 0
        """Bytes of responses that were, or will be, handed over whole, and are not sent yet."""
        self._limits = FrameLimits(loop.time)
        self._held = service.budget.head()
        self._untaken = 0
        """Bytes of bodies for which the client has no credit yet."""
        self._last = 0
        """The highest number of a stream that has begun."""
        self._ending = False
        """True once the client is told to begin no other streams, or sends nothing more."""
        self._refusing = False
        """True once streams that begin are not processed."""
        self._ended = False
        """True once nothing more is read."""
        self._over = False
        """True once everything is sent, and the sending side has ended."""
        buffer = service.limits.buffer_bytes
        self._turns = Turns(socket, loop, buffer, self._read, self._client_ended)
        self._idle_since = self._stuck_since = loop.time()
        self._written = self._stuck_at = 0
        """The bytes written, now and at the last sweep."""
        self._closing: asyncio.TimerHandle | None = None
        self._unnumbered: list[Http2Stream] = []
        """Records under way of requests whose stream never opened."""
        self._flushing = False
        self._sweep_timer = loop.call_later(_SWEEP_SECONDS, self._sweep)
        self._steps: dict[type, Callable[..., None]] = {
            h2.RequestReceived: self._begin,
            h2.DataReceived: self._data,
            h2.TrailersReceived: self._trailers,
            h2.StreamReset: self._reset,
            h2.StreamClosed: self._closed,
            h2.PingAcknowledged: self._announced,
            h2.ConnectionClosed: self._failed,
        }

    # -------------------------------------------------------------------------- what the owner does

    def receive(self, data: bytes) -> bool:
        """Serve what arrives. Returns True: what there is no room for ends the connection."""
        self._turns.receive(data)
        return True

    def _read(self, data: bytes, most: int) -> int:
        """Handle up to about `most` frames. Returns the bytes that wait for the next turn."""
        limits, whole = self._limits, b""
        if self._ended:
            return 0
        try:
            whole = limits.feed(data, most)
            if not self._hold():
                raise Flood(Cause.HEAD, "there is no room for another unfinished head")
            if whole:
                self._handle(events := self.session.receive(whole))
                heads = (h2.RequestReceived, h2.TrailersReceived)
                limits.answered(sum(isinstance(each, heads) for each in events))
        except (Flood, SessionFailed) as error:
            self._cut_off(error)
        if whole or self._ended:
            self.flush()
        return limits.held if limits.more and not self._ended else 0

    def writable(self) -> None:
        """Go on writing: the transport has room again."""
        self.flush()

    def client_ended(self) -> bool:
        """Note that the client sends nothing more. Returns whether the connection stays open."""
        return self._turns.client_ended()

    def _client_ended(self) -> bool:
        """End what the client has not sent whole. Returns whether responses are still owed; as a
        client that is gone looks the same, they must begin within `half_close_seconds`."""
        self._ending = self._refusing = True
        for stream in self._streams():
            stream.request.body.fail(BodyBrokenOff())
        seconds = self.service.limits.half_close_seconds
        if not seconds:
            self._drop_unanswered()
        else:
            self._set_timer(seconds, self._drop_unanswered)
        return bool(self.streams) and not self._ended

    def _drop_unanswered(self) -> None:
        for stream in self._streams():
            if not stream.request.response_started or stream.request.ends_on_client_close:
                self.session.reset(stream.number, h2.CANCEL)
                self._drop(stream)
        self.flush()

    def lost(self) -> None:
        """End everything: the connection is gone."""
        self._ended = True
        self._sweep_timer.cancel()
        self._turns.stop()
        if self._closing is not None:
            self._closing.cancel()
        for stream in self._streams():
            self._drop(stream)
        # Last: a body that is dropped has what is held counted again, an unfinished head too.
        self._held.release()

    def finish(self) -> None:
        """Take no new streams, once the client knows, and end the connection with the last one."""
        if not (self._ending or self._ended):
            self._ending = True
            self.session.announce_end()
            self._set_timer(_ROUND_TRIP_SECONDS, self._refuse_streams)
            self.flush()

    def _set_timer(self, seconds: float, act: Callable[[], None]) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = self.loop.call_later(seconds, act)

    def _refuse_streams(self) -> None:
        if not (self._refusing or self._ended):
            self._refusing = True
            self.session.refuse_streams()
            self.flush()

    def has(self, number: int) -> bool:
        """Return whether the stream is open."""
        return number in self.streams

    def log_failure(self, error: BaseException) -> None:
        """Log that a stream is reset because of a bug of ours."""
        log.error("a stream failed", exc_info=error)

    def tasks(self) -> list["asyncio.Task[None]"]:
        """Return the tasks that answer requests."""
        streams = [*self.streams.values(), *self._unnumbered]
        return [each.task for each in streams if each.task is not None]

    def _handle(self, events: list[h2.Event]) -> None:
        try:
            for event in events:
                step = self._steps.get(type(event))
                if step is not None:
                    step(event)
        finally:
            self._serve_begun()

    def _begin(self, event: h2.RequestReceived) -> None:
        number = event.stream_id
        self._last = max(self._last, number)
        if len(self.streams) >= self.service.limits.streams:
            # Nothing was read of it, so nothing was decided: the client may send it again.
            self._limits.provoked()
            self.session.reset(number, h2.REFUSED_STREAM)
            return
        self.streams[number] = stream = Http2Stream(self, number)
        request = stream.request
        try:
            head = TranslatedHead(event.headers, self._schemes, self.service.limits.head)
        except BadHead as error:
            request.fault, stream.ended = str(error), True
            self._limits.provoked()
            self.session.reset(number, h2.PROTOCOL_ERROR)
        else:
            request.method, request.target, request.fields = head.method, head.target, head.fields
        if not event.end_stream and not request.fault:
            stream.open_body()
        self._begun.append(stream)

    def _serve_begun(self) -> None:
        """Serve the requests that have begun. Most bodies arrive with their heads, and then cost no
        task."""
        begun, self._begun = self._begun, []
        for stream in begun:
            stream.serve()

    def _data(self, event: h2.DataReceived) -> None:
        stream, count = self.streams.get(event.stream_id), len(event.data)
        if stream is None or not stream.receive(event.data):
            # No reader will take it, but the connection's window must not shrink for that.
            self.session.credit(event.stream_id, count)
        else:
            self._untaken += count
            if not self._hold():
                stream.refuse_body(Unavailable(_BODIES_FULL))
        if stream is not None and event.end_stream:
            stream.request.body.end()

    def _trailers(self, event: h2.TrailersReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.end_body(event.headers)

    def _reset(self, event: h2.StreamReset) -> None:
        # `_closed` follows, and does what is to be done.
        self._serve_begun()
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            stream.reset_by_client = True

    def _closed(self, event: h2.StreamClosed) -> None:
        self._serve_begun()
        number, code = event.stream_id, event.error_code
        stream = self.streams.pop(number, None)
        if stream is None:
            if code and number > self._last:
                # The library refused its head, and has reset it: what it asked for is not known.
                self._last = number
                self._record(_FAULT)
            return
        by_client = stream.reset_by_client
        provoked = code and not (by_client or stream.ended)
        stream.close(broken=by_client or bool(code))
        if not self.streams:
            self._idle_since = self.loop.time()
        if provoked:
            # It broke the protocol on the stream. A reset of its own is counted as a frame.
            self._limits.provoked()

    def _record(self, fault: str) -> None:
        """Record a request that could not be read, and that has no stream to answer it on."""
        stream = Http2Stream(self, 0)
        stream.ended = True
        stream.request.fault = fault
        left = [each for each in self._unnumbered if each.task is not None]
        self._unnumbered = [*left, stream]
        stream.serve()

    def _announced(self, _event: h2.PingAcknowledged) -> None:
        if self._ending:
            self._refuse_streams()

    def _failed(self, event: h2.ConnectionClosed) -> None:
        if event.error_code:
            self._cut_off(SessionFailed(event.debug_data.decode("latin-1")))

    def credit(self, number: int, count: int) -> None:
        """Let the client send `count` more bytes on a stream: as many were taken."""
        self._untaken -= count
        self._hold()
        self.session.credit(number, count)
        self.flush()

    def _hold(self) -> bool:
        """Count what is held for this connection: bytes of bodies, and of a head that has not
        ended. Return False if there is no room for it."""
        held = self._untaken
        if self._limits.head_since is not None:
            held += self._limits.held
        return held == self._held.size or self._held.resize(held)

    # ------------------------------------------------------------------------------------- writing

    def flush(self) -> None:
        """Write what is to be sent, as long as the transport takes it."""
        if self._flushing:
            return
        self._flushing = True
        try:
            while self._write_some():
                pass
        except ConnectionError:
            return  # the client is gone: `lost` follows
        finally:
            self._flushing = False
        for stream in self._streams():
            stream.sent()
        self._end_if_done()

    def _write_some(self) -> bool:
        """Write a part of what is to be sent, and handle the events that this caused. Return
        whether there may be more."""
        socket, session, data = self.socket, self.session, b""
        if not (self._over or socket.transport is None or socket.congested):
            data = session.sendable(_WRITE_BYTES)
        if data:
            self._limits.sent(len(data))
            self._written += len(data)
            socket.write(data)
        # A stream closes once its last byte was sent.
        events = session.events()
        try:
            self._handle(events)
        except Flood as error:
            self._cut_off(error)
        return bool(data or events)

    def _end_if_done(self) -> None:
        """End the connection if everything is sent, and nothing more is to come."""
        transport, session = self.socket.transport, self.session
        if self._over or transport is None or transport.is_closing() or self.socket.congested:
            return
        ends = self._ended or not session.wants_more
        last = self._ending and self._refusing and not (self.streams or self._turns.waiting)
        if ends or last:
            self._ended = self._over = True
            self._turns.stop()
            self.socket.end()

    # --------------------------------------------------------------------------------- what goes on

    def _sweep(self) -> None:
        """End what takes too long: an idle connection, a head that never ends, a response that the
        client does not take."""
        now, limits = self.loop.time(), self.service.limits
        self._sweep_timer = self.loop.call_later(_SWEEP_SECONDS, self._sweep)
        seconds = min(_CREDIT_SECONDS, limits.write_seconds)
        if not (self.socket.congested or self._ended) or self._written != self._stuck_at:
            self._stuck_at, self._stuck_since = self._written, now
        elif now - self._stuck_since > seconds:
            log.info("a connection is cut off: its client took nothing for %g s", seconds)
            self.service.budget.count_cut_off(Cause.UNREAD.value)
            self._abort()
            return
        since = self._limits.head_since
        if since is not None and now - since > limits.idle_seconds:
            self._cut_off(Flood(Cause.HEAD, f"a head took longer than {limits.idle_seconds:g} s"))
        elif not self.streams and now - self._idle_since > limits.idle_seconds:
            self.finish()
        for stream in self._streams():
            if stream.stalled(now, seconds):
                log.info("a stream is reset: its client took nothing for %g s", seconds)
                stream.cut()
        self.flush()

    def _cut_off(self, error: Exception) -> None:
        """End the connection because of what its client sent."""
        if self._ended:
            return
        self._ended = True
        log.info("an HTTP/2 connection is cut off: %s", error)
        cause, fault = Cause.PROTOCOL, _FAULT
        if isinstance(error, Flood):
            cause, fault = error.cause, f"{_FAULT}: {error}"
            self.session.terminate(h2.ENHANCE_YOUR_CALM, str(error))
        self.service.budget.count_cut_off(cause.value)
        self._record(fault)

    def _streams(self) -> list[Http2Stream]:
        """Return the open streams: what is done with one may end others."""
        return list(self.streams.values())

    def _abort(self) -> None:
        if self.socket.transport is not None:
            self.socket.transport.abort()

    def _drop(self, stream: Http2Stream) -> None:
        self.streams.pop(stream.number, None)
        stream.close(broken=True)
