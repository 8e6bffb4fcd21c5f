"""The input of one connection that is not answered yet: bytes that are not parsed, requests that
wait, and the one that is being answered. Knows no response, no transport and no time."""

import logging
from collections import deque
from functools import partial

from policies.ground.connection_budget import HeldHead
from sidecar.http.messages.body import BodyBrokenOff, BodyStream
from sidecar.http.messages.request_parser import HTTP_11, RequestParser
from sidecar.http.server.head_cache import LONGEST
from sidecar.http.server.http2_refusal import SETTINGS, Http2Opening
from sidecar.http.server.request import ClientConnection, HttpRequest, ServerLimits

log = logging.getLogger(__name__)

PIECE = 64 * 1024
"""The most bytes that are parsed at once, before the requests in them are served."""


class Incoming:
    """The input of `connection` that is not answered yet. A whole request with a remembered head
    needs no parser. `held_head` counts the bytes held of an incomplete head."""

    __slots__ = (
        "_connection", "_ends_half_closed", "_heads", "_held_head", "_opening", "_parser",
        "current", "half_closed", "last", "stopped", "unread", "waiting",
    )  # fmt: skip

    def __init__(
        self, connection: ClientConnection, limits: ServerLimits, held_head: HeldHead
    ) -> None:
        self._connection = connection
        self._held_head = held_head
        self._heads = connection.heads
        self._ends_half_closed = not limits.half_close_seconds
        self.unread = bytearray()
        """Bytes that were not parsed yet."""
        self.waiting: deque[HttpRequest] = deque()
        """Requests behind the one that is being answered."""
        self.current: HttpRequest | None = None
        """The request that is being answered."""
        self.last = False
        """True if nothing after the current request is read."""
        self.stopped = False
        """True if nothing at all is read any more."""
        self.half_closed = False
        """True if the client has closed its sending side."""
        self._opening: Http2Opening | None = Http2Opening()
        """Set while the connection may be one of HTTP/2."""
        self._parser = RequestParser(
            limits.head,
            partial(HttpRequest, connection),
            partial(BodyStream, limits.buffer_bytes, connection),
            self.waiting.append,
        )

    def held(self) -> bool:
        """Return whether new bytes have to wait: other requests wait, a body's reader is slow, or
        the bytes may not be a request."""
        if self.waiting or self.stopped or self._parser.failed:
            return True
        request = self.current
        if request is None:
            return self.last
        body = request.body
        return body.full or ((request.offers_upgrade or self.last) and body.settled)

    @property
    def ending(self) -> bool:
        """True if the current request is the last one: the client has half-closed and sent no
        other, or nothing after it is read."""
        if self.last or self.stopped or (self.half_closed and self._ends_half_closed):
            return True
        if not self.waiting and (self._parser.failed or (self.half_closed and not self.unread)):
            return True
        # Bytes that follow an offer to upgrade before its response may belong to the protocol that
        # was offered (RFC 9931).
        return bool(self.unread) and self.current is not None and self.current.offers_upgrade

    def owes_response(self) -> bool:
        """Return whether a client that has half-closed may still wait for the response to a whole
        request."""
        request = self.current
        if request is None:
            # A request that the client broke off fails when it is served, and no response before it
            # does.
            return bool(self.waiting)
        return request.body.settled and not request.ends_on_client_close

    def parse_unread(self) -> None:
        """Parses the next piece of the unread bytes."""
        piece = bytes(self.unread[:PIECE])
        del self.unread[:PIECE]
        self.parse(piece)

    def parse(self, piece: bytes) -> None:
        """Parses bytes that follow those parsed so far. The requests that are found wait."""
        if self._opening is not None and self._speaks_http2(self._opening, piece):
            return
        parser, waiting = self._parser, self.waiting
        end = piece.find(b"\r\n\r\n") + 4 if parser.message is None else 0
        raw_head = piece[:end] if 4 <= end <= LONGEST else b""
        if raw_head:
            known = self._heads.find(raw_head)
            if known is not None and len(piece) == end + known.length:
                request = HttpRequest(self._connection)
                request.method, (start, stop), length, request.head = known
                request.target = raw_head[start:stop].decode("ascii")
                request.known, request.raw_head = True, raw_head
                if length:
                    request.body = BodyStream.of(piece[end:])
                waiting.append(request)
                return
        before = len(waiting)
        # Kept before anything is served: a request that offers another protocol must see that
        # something follows it.
        rest = parser.feed(piece)
        if rest:
            self.unread[:0] = rest
        self._hold_head(parser.head_bytes)
        # Exactly one request, without a chunked body: its length is part of its head.
        if raw_head and len(waiting) == before + 1 and parser.message is None:
            request = waiting[-1]
            if (
                len(piece) == end + request.body.total_bytes
                and not (parser.failed or request.should_close or request.offers_upgrade)
                and request.version == HTTP_11
            ):
                request.raw_head = raw_head

    def _speaks_http2(self, opening: Http2Opening, piece: bytes) -> bool:
        """Return whether `piece`, which follows the bytes parsed so far, belongs to HTTP/2. A
        client's first request is then treated as one that can't be read."""
        begun = opening.found
        if not opening.feed(piece):
            self._opening = None
            return False
        if not opening.found:
            return False  # it may still be HTTP/1
        if not begun:
            self._parser.reset()  # it may hold the beginning of the preface
            self._hold_head(0)
            self._connection.write(SETTINGS)
        if opening.requested:
            request = HttpRequest(self._connection)
            request.fault = request.http2 = True
            self.last, self._opening = True, None
            self.waiting.append(request)
        return True

    def _hold_head(self, size: int) -> None:
        held = self._held_head
        if size != held.size and not held.resize(size):
            self._connection.refuse_head()

    def read_past_offer(self) -> None:
        """Parses the bytes after an offer of another protocol as HTTP."""
        self._parser.reset()

    def stop(self) -> None:
        """Reads and serves nothing after the current request."""
        self.stopped = True
        self._held_head.release()
        if self._parser.head_bytes:
            self._parser.reset()  # a connection that lingers keeps nothing of a head
        self.unread.clear()
        self.waiting.clear()

    def break_off(self) -> None:
        """Notes that the connection is lost."""
        self.stop()
        request = self.current
        if request is not None and not request.body.settled:
            log.info("a client hung up in the middle of its request body")
            request.body.fail(BodyBrokenOff())
