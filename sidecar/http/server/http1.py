"""Follows HTTP/1.1 on one connection from a client: which request is being answered, which requests
wait, which bytes are not parsed yet, and what may come next. `State` says what the connection does,
and each step from one state to another is a method of `Http1`:

    IDLE        begin ▶ RESPONDING
    RESPONDING  done ▶ IDLE   discard ▶ DISCARDING   switch ▶ SWITCHED
    DISCARDING  done ▶ IDLE
    any         drain ▶ DRAINING, or close ▶ CLOSED, after which nothing is read or served

The parser and the body's stream know how far a message has arrived. Pure: holds no transport,
writes nothing and waits for nothing. `connection.py` owns it and acts on what it says.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from policies.ground.connection_budget import HeldHead
from sidecar.http.messages.body import BodyBrokenOff, BodyStream
from sidecar.http.messages.request_parser import HTTP_11, RequestParser
from sidecar.http.server.head_cache import LONGEST, HeadCache
from sidecar.http.server.request import HttpRequest, ServerLimits

PIECE = 64 * 1024
"""The most bytes that are parsed at once; the requests in them are served before more is parsed."""


class State(Enum):
    """The states of a connection. Bytes are read only in the first three."""

    IDLE = auto()
    """The connection waits for a request, or for the rest of a request's head."""
    RESPONDING = auto()
    """A request is being answered, while its body may still arrive."""
    DISCARDING = auto()
    """A request is answered, and the rest of its body is read and dropped."""
    SWITCHED = auto()
    """Another protocol runs the connection."""
    DRAINING = auto()
    """The last response is written, and what still arrives is dropped until the client closes."""
    CLOSED = auto()
    """The connection is lost, or broken off. A request may still be under way."""


# By name: to look a member up in its class costs 100 ns in Python 3.11.
IDLE, RESPONDING, DISCARDING, SWITCHED, DRAINING, CLOSED = State
_READING = (RESPONDING, IDLE, DISCARDING)


class Http1:
    """The state of one connection that speaks HTTP/1.1. A whole request whose head is in the cache
    `heads` isn't parsed again. `held_head` counts the bytes of an incomplete head against their
    budget."""

    __slots__ = (
        "_ends_half_closed", "_heads", "_held_head", "_new_request", "_parser",
        "current", "half_closed", "last", "state", "unread", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        limits: ServerLimits,
        heads: HeadCache,
        held_head: HeldHead,
        new_request: Callable[[], HttpRequest],
        new_body: Callable[[], BodyStream],
    ) -> None:
        self._heads = heads
        self._held_head = held_head
        self._new_request = new_request
        self._ends_half_closed = not limits.half_close_seconds
        self.state = IDLE
        self.unread = bytearray()
        """The bytes that have arrived and are not parsed yet."""
        self.waiting: deque[HttpRequest] = deque()
        """The parsed requests that are not being answered yet."""
        self.current: HttpRequest | None = None
        """The request that is being answered."""
        self.last = False
        """True if nothing that follows the current request may be read."""
        self.half_closed = False
        """True if the client has closed its sending side."""
        self._parser = RequestParser(limits.head, new_request, new_body, self.waiting.append)

    # ------------------------------------------------------------------------ from state to state

    def begin(self) -> HttpRequest:
        """Make the next waiting request the current one, and return it."""
        assert self.state is IDLE
        self.state = RESPONDING
        self.current = request = self.waiting.popleft()
        return request

    def discard(self) -> None:
        """Drop the rest of the current request's body, since the request is answered."""
        if self.state is RESPONDING:
            self.state = DISCARDING

    def done(self) -> None:
        """End the current request. The next one may begin, unless the connection has ended."""
        self.current = None
        if self.state is RESPONDING or self.state is DISCARDING:
            self.state = IDLE

    def switch(self) -> bytes:
        """Give the connection to another protocol, and return the bytes that followed the
        request."""
        data = bytes(self.unread)
        self._stop(SWITCHED)
        return data

    def drain(self) -> None:
        """Note that the last response is written. What still arrives is dropped."""
        self._stop(DRAINING)

    def close(self) -> None:
        self._stop(CLOSED)

    def lose(self) -> bool:
        """Note that the connection is lost. Returns True if the current request's body failed
        because of that."""
        self.close()
        request = self.current
        if request is None or request.body.settled:
            return False
        request.body.fail(BodyBrokenOff())
        return True

    def _stop(self, state: State) -> None:
        if self.state is not CLOSED:
            self.state = state
        self._held_head.release()
        if self._parser.head_bytes:
            self._parser.reset()  # a connection that lingers keeps nothing of a head
        self.unread.clear()
        self.waiting.clear()

    # ---------------------------------------------------------------------------- what may follow

    def holds_back(self) -> bool:
        """Return whether new bytes have to wait unparsed: other requests wait, the reader of a body
        is slow, or the bytes may not be a request."""
        if self.waiting or self._parser.failed:
            return True
        request = self.current
        if request is None:
            return self.last or self.state is not IDLE
        if self.state not in _READING:
            return True
        body = request.body
        return body.full or ((request.offers_upgrade or self.last) and body.settled)

    @property
    def ending(self) -> bool:
        """True if the current request is the last one: the client has half-closed and sent no
        other, or nothing that follows it is read."""
        if self.last or self.state not in _READING or (self.half_closed and self._ends_half_closed):
            return True
        if not self.waiting and (self._parser.failed or (self.half_closed and not self.unread)):
            return True
        # Bytes that follow an offer to upgrade before its response may belong to the protocol that
        # was offered (RFC 9931).
        return bool(self.unread) and self.current is not None and self.current.offers_upgrade

    def owes_response(self) -> bool:
        """Return whether a client that has half-closed may still wait for a response, because it
        has sent a whole request."""
        request = self.current
        if request is None:
            # A request that the client broke off fails when it is served, and no response before it
            # does.
            return bool(self.waiting)
        return request.body.settled and not request.ends_on_client_close

    # ------------------------------------------------------------------------------------ reading

    def hold(self, data: bytes) -> None:
        """Keep `data`, which has to wait unparsed. Dropped if the connection reads no more."""
        if self.state in _READING:
            self.unread += data

    def next_piece(self) -> bytes:
        """Return the next piece of the bytes that waited, to be parsed now."""
        piece = bytes(self.unread[:PIECE])
        del self.unread[:PIECE]
        return piece

    def parse(self, piece: bytes) -> bool:
        """Parse the next bytes, and add the requests found to `waiting`. Returns False if the
        budget has no room for the head that is arriving."""
        parser, waiting = self._parser, self.waiting
        end = piece.find(b"\r\n\r\n") + 4 if parser.message is None else 0
        raw_head = piece[:end] if 4 <= end <= LONGEST else b""
        if raw_head:
            known = self._heads.find(raw_head)
            if known is not None and len(piece) == end + known.length:
                request = self._new_request()
                request.method, (start, stop), length, request.head = known
                request.target = raw_head[start:stop].decode("ascii")
                request.known, request.raw_head = True, raw_head
                if length:
                    request.body = BodyStream.of(piece[end:])
                waiting.append(request)
                return True
        before = len(waiting)
        # Kept before anything is served: a request that offers another protocol must see that
        # something follows it.
        rest = parser.feed(piece)
        if rest:
            self.unread[:0] = rest
        held = self._held_head
        fits = parser.head_bytes == held.size or held.resize(parser.head_bytes)
        # Exactly one request, without a chunked body: its length is part of its head.
        if raw_head and len(waiting) == before + 1 and parser.message is None:
            request = waiting[-1]
            if (
                len(piece) == end + request.body.total_bytes
                and not (parser.failed or request.should_close or request.offers_upgrade)
                and request.version == HTTP_11
            ):
                request.raw_head = raw_head
        return fits

    def restart(self) -> None:
        """Start over: take the next byte as the first one of a head."""
        self._parser.reset()
        self._held_head.release()
