"""What has arrived on one connection and is not answered yet: bytes that are not parsed, requests
that wait, and the one that is being answered. Knows no response, no transport and no time."""

import logging
from collections import deque
from functools import partial
from typing import Protocol

from sidecar.http.messages.body import BodyStream, FlowControl
from sidecar.http.messages.disconnects import BodyBrokenOff
from sidecar.http.messages.request_parser import HTTP_11, RequestParser
from sidecar.http.server.head_cache import LONGEST, HeadCache
from sidecar.http.server.request import ClientConnection, HttpRequest
from sidecar.http.server.service import ServerLimits

log = logging.getLogger(__name__)

_PIECE = 64 * 1024
"""The most bytes that are parsed before what they contain is served."""


class RequestConnection(ClientConnection, FlowControl, Protocol):
    """What requests and their bodies know of the connection that they arrive on."""


class Incoming:
    """What has arrived on `connection`. A whole request whose head is in `heads` needs no
    parser."""

    __slots__ = (
        "_heads",
        "_new_request",
        "_parser",
        "current",
        "half_closed",
        "last",
        "stopped",
        "unread",
        "waiting",
    )

    def __init__(
        self, connection: RequestConnection, limits: ServerLimits, heads: HeadCache
    ) -> None:
        self._heads = heads
        self._new_request = partial(HttpRequest, connection)
        self.unread = bytearray()
        """What was not parsed yet."""
        self.waiting: deque[HttpRequest] = deque()
        """Requests behind the one that is being answered."""
        self.current: HttpRequest | None = None
        """The request that is being answered."""
        self.last = False
        """Whether nothing after the current request is read: it may not be HTTP."""
        self.stopped = False
        """Whether nothing at all is read any more."""
        self.half_closed = False
        """Whether the client has closed its sending side."""
        new_body = partial(BodyStream, limits.buffer_bytes, connection)
        self._parser = RequestParser(limits.head, self._new_request, new_body, self.waiting.append)

    def held(self) -> bool:
        """Whether what arrives has to wait: other requests do, a body's reader is slow, or it may
        not be a request."""
        if self.waiting or self.stopped or self._parser.failed:
            return True
        request = self.current
        if request is None:
            return self.last
        body = request.body
        return body.full or (body.settled and (request.offers_upgrade or self.last))

    @property
    def ending(self) -> bool:
        """Whether the current request is the last one: the client has half-closed and sent no
        other, or what follows may not be HTTP."""
        if self.last or self.stopped:
            return True
        unread = self.unread
        if not self.waiting and (self._parser.failed or (self.half_closed and not unread)):
            return True
        # Bytes that follow an offer to upgrade before its response may belong to the protocol that
        # was offered (RFC 9931).
        request = self.current
        return request is not None and request.offers_upgrade and bool(unread)

    def owes_response(self) -> bool:
        """Whether a client that has half-closed may wait for the response to a whole request."""
        request = self.current
        # What is unread may be what ends the body of a request that waits.
        if not (self.unread or all(each.body.settled for each in self.waiting)):
            return False
        if request is None:
            return bool(self.waiting)
        return request.body.settled and not request.ends_on_client_close

    def parse(self) -> None:
        """Parses the next piece. Requests that are found wait."""
        unread, waiting = self.unread, self.waiting
        if len(unread) <= _PIECE:
            piece = bytes(unread)
            unread.clear()
        else:
            piece = bytes(unread[:_PIECE])
            del unread[:_PIECE]
        end = piece.find(b"\r\n\r\n") + 4 if self._parser.at_boundary() else 0
        if not 4 <= end <= LONGEST:
            self._feed(piece)
            return
        raw_head = piece[:end]
        known = self._heads.find(raw_head)
        if known is not None and len(piece) == end + known.length:
            request = self._new_request()
            request.method, (start, stop), length, request.head = known
            request.target = raw_head[start:stop].decode("ascii")
            request.known, request.raw_head = True, raw_head
            if length:
                request.body = BodyStream.of(piece[end:])
            waiting.append(request)
            return
        before = len(waiting)
        self._feed(piece)
        if len(waiting) == before + 1:
            request = waiting[-1]
            # Exactly one request, without a chunked body: its length is part of its head.
            if (
                len(piece) == end + request.body.total_bytes
                and self._parser.at_boundary()
                and not (request.should_close or request.offers_upgrade)
                and request.version == HTTP_11
            ):
                request.raw_head = raw_head

    def _feed(self, piece: bytes) -> None:
        # Kept before anything is served: a request that offers another protocol must see that
        # something follows it.
        rest = self._parser.feed(piece)
        if rest:
            self.unread[:0] = rest

    def read_past_offer(self) -> None:
        """Parses what follows an offer of another protocol as HTTP."""
        self._parser.reset()

    def stop(self) -> None:
        """Reads and serves nothing after the current request."""
        self.stopped = True
        self.unread.clear()
        self.waiting.clear()

    def break_off(self) -> None:
        """Notes that the connection is lost."""
        self.stop()
        request = self.current
        if request is not None and not request.body.settled:
            log.info("a client hung up in the middle of its request body")
            request.body.fail(BodyBrokenOff())
