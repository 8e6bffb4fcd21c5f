"""Reads the responses on one connection: their heads, and their bodies by their length, by their
chunks, or up to the end of the connection.

Whatever follows the end of a response is noticed to the byte, since it must never become the next
one (response smuggling). Knows bytes and messages. Knows no connection.
"""

from collections.abc import Callable

from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.chunks import BadChunks, BadTrailers, ChunkReader, TrailerReader
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.messages.response_head import (
    SWITCHING,
    BadResponse,
    ResponseMessage,
    read_head,
)

_HEAD_END = b"\r\n\r\n"
_HTTP_1 = b"HTTP/1."
MAX_INTERIM = 64
"""The most interim responses before one response. A server that sends a `102` every ten seconds may
work for ten minutes."""


class ResponseParser:
    """Call `expect` before each response. `new_body` makes the stream for a body that has not
    arrived to its end. With `trailers`, the trailers of a body are kept; the body fails if they may
    not be forwarded."""

    def __init__(
        self, limits: HeadLimits, new_body: Callable[[], BodyStream], *, trailers: bool = False
    ) -> None:
        self._limits = limits
        self._trailers = trailers
        self._new_body = new_body
        self._body: BodyStream | None = None
        """The body that is arriving."""
        self._chunks: ChunkReader | None = None
        self._left: int | None = 0
        """The bytes of the body that are missing; None if that isn't known."""
        self._in_head = self._to_head = self._upgrade = False
        self._held = bytearray()
        self._interim = self._interim_bytes = 0
        self.complete = True
        """True if no response is expected, or all of it has arrived."""
        self.excess = False
        """True if bytes arrived that belong to no response."""
        self.tail = b""
        """The bytes after the head of a requested upgrade."""

    def expect(self, *, to_head: bool = False, upgrade: bool = False) -> None:
        """Prepares for the next response. One `to_head` has no body; with `upgrade`, it may be a
        101."""
        self._to_head, self._upgrade = to_head, upgrade
        self._in_head, self.complete = True, False
        self._interim = self._interim_bytes = 0

    def feed(self, data: bytes) -> ResponseMessage | None:
        """Reads `data`. Returns the response if its head ends in it. Raises `BadResponse` if that
        head can't be read; a broken body fails by itself."""
        if self._in_head:
            return self._read_heads(data)
        body = self._body
        if body is None:
            self.excess = self.excess or bool(data)
        elif self._chunks is not None:
            self._read_chunks(body, self._chunks, data)
        elif self._left is None or len(data) < self._left:
            self._left = None if self._left is None else self._left - len(data)
            body.append(data)
        else:
            body.append(data[: self._left])
            self.excess = len(data) > self._left
            self._finish(body)
        return None

    def end(self) -> None:
        """Notes the orderly end of the connection, which may be the end of a body."""
        if self._body is not None and self._left is None and self._chunks is None:
            self._finish(self._body)

    def fail(self, error: BaseException) -> None:
        """Notes that the connection was lost."""
        if self._body is not None:
            self._body.fail(error)

    def _read_heads(self, data: bytes) -> ResponseMessage | None:
        held = self._held
        if held:
            held += data
            if held.find(_HEAD_END, max(0, len(held) - len(data) - 3)) < 0:
                self._check_held()
                return None
            data = bytes(held)
            held.clear()
        begin = 0
        while (end := data.find(_HEAD_END, begin)) >= 0:
            message = read_head(data[begin:end], self._limits)
            begin, size = end + len(_HEAD_END), end + len(_HEAD_END) - begin
            if message.status >= 200 or message.status == SWITCHING:
                self._in_head = False
                self._begin_body(message, data[begin:])
                return message
            self._count_interim(size)
        held += data[begin:]
        self._check_held()
        return None

    def _count_interim(self, size: int) -> None:
        """Counts interim responses, which are not relayed and have no body: no other limit applies
        to them."""
        self._interim += 1
        self._interim_bytes += size
        if self._interim > MAX_INTERIM or self._interim_bytes > self._limits.field:
            raise BadResponse("more or larger interim responses came than the limits allow")

    def _check_held(self) -> None:
        held, limits = self._held, self._limits
        if held[:7] != _HTTP_1[: len(held)]:  # now: other servers may await us
            raise BadResponse("the response is not one of HTTP/1")
        if len(held) > limits.field and len(held) - held.rfind(b"\n") > limits.field:
            raise BadResponse("a line of the response is longer than the limits allow")
        if len(held) > limits.field * (limits.fields + 1):
            raise BadResponse("the response's head is larger than the limits allow")

    def _begin_body(self, message: ResponseMessage, rest: bytes) -> None:
        length = None if message.length is None else int(message.length)
        message.empty = message.empty or self._to_head
        if message.status == SWITCHING:
            if not self._upgrade:
                raise BadResponse("the response is an upgrade that was not asked for")
            self.tail, self.complete = rest, True
        elif message.empty:
            self.complete, self.excess = True, bool(rest)
        elif length is not None and len(rest) >= length:
            # The usual case: all of it arrived with the head.
            self.complete, self.excess = True, len(rest) > length
            message.body = BodyStream.of(rest[:length])
        else:
            self._left = length
            message.body = self._body = self._new_body()
            self._chunks = self._chunk_reader(message) if message.chunked else None
            self.feed(rest)

    def _chunk_reader(self, message: ResponseMessage) -> ChunkReader:
        if not self._trailers:
            return ChunkReader(self._limits.field)
        try:
            message.trailer_head.announcement()
        except BadTrailers as error:
            raise BadResponse(f"the response's `Trailer`: {error}") from error
        reader = TrailerReader(self._limits.field, message.trailer_head)
        message.body.trailers = reader.trailers
        return reader

    def _read_chunks(self, body: BodyStream, chunks: ChunkReader, data: bytes) -> None:
        try:
            body.append(chunks.feed(data))
        except BadChunks as error:
            failure = BadResponse(str(error) or "the response's chunks can't be parsed")
            failure.__cause__ = error
            body.fail(failure)
        else:
            if chunks.ended:
                self.excess = chunks.excess
                self._finish(body)

    def _finish(self, body: BodyStream) -> None:
        self._body = self._chunks = None
        self.complete = True
        body.end()
