"""Reads responses on one connection: their heads with llhttp, a strict parser (through httptools),
and their bodies by their length, by their chunks, or up to the end of the connection.

What can't be parsed, or could be framed in two ways, is `BadResponse`; and whatever follows the end
of a response is noticed to the byte, since it must never become the next one (response smuggling).

Knows bytes and messages. Knows no connection.
"""

import re
from collections.abc import Callable
from http import HTTPStatus

import httptools

from sidecar.http.headers import ResponseHead, sort_response_fields
from sidecar.http.messages.body import EMPTY, BodyStream
from sidecar.http.messages.chunks import BadChunks, ChunkReader
from sidecar.http.messages.request_parser import Fields, HeadLimits

_HEAD_END = b"\r\n\r\n"
_HTTP_1, _HTTP_11, _HTTP_10 = b"HTTP/1.", b"HTTP/1.1 ", b"HTTP/1.0 "
_USUAL_REASONS = frozenset(status.phrase.encode() for status in HTTPStatus)
# llhttp lets these pass in a reason phrase (RFC 9112 section 4).
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_NO_BODY = frozenset((204, 304))
_SWITCHING = 101
# The digits of 2**63: no length that is meant has more.
_LENGTH_DIGITS = 19


class BadResponse(Exception):
    """the response can't be read"""


class ResponseMessage:
    """One response, without the interim ones before it. `fields` are its header fields as they were
    written, without white space around their values; `forward` are those to forward. `length` is
    the value of `Content-Length`, None if the body ends with its last chunk or with the
    connection. `should_close` says that the server ends the connection after it."""

    __slots__ = ("body", "fields", "forward", "length", "reason", "should_close", "status")

    def __init__(self, status: int, reason: bytes, fields: Fields, *, should_close: bool) -> None:
        self.status = status
        self.reason = reason
        self.fields = self.forward = fields
        self.length: bytes | None = None
        self.body = EMPTY
        self.should_close = should_close


class ResponseParser:
    """Call `expect` before each response. `new_body` makes the stream for a body of which more will
    arrive."""

    def __init__(self, limits: HeadLimits, new_body: Callable[[], BodyStream]) -> None:
        self._limits = limits
        self._new_body = new_body
        self._body: BodyStream | None = None
        self._chunks: ChunkReader | None = None
        self._left: int | None = 0
        self._in_head = False
        self._held = bytearray()
        self.complete = True
        """Whether no response is expected, or all of it has arrived."""
        self.excess = False
        """Whether anything arrived that belongs to no response."""
        self.tail = b""
        """What followed the head of an upgrade that was asked for."""

    def expect(self, *, body: bool = True, upgrade: bool = False) -> None:
        """Prepares for the next response. It has no `body` if it answers a HEAD; with `upgrade`, it
        may be a 101."""
        self._without_body = not body
        self._upgrade = upgrade
        self._in_head = True
        self.complete = False

    def feed(self, data: bytes) -> ResponseMessage | None:
        """Reads `data`. Returns the response if its head ends in it. Raises `BadResponse` if that
        head can't be read; a broken body fails by itself."""
        if self._in_head:
            return self._read_heads(data)
        if self.complete:
            self.excess = self.excess or bool(data)
        elif self._chunks is not None:
            self._read_chunks(self._chunks, data)
        else:
            self._read_plain(data)
        return None

    def end(self) -> None:
        """Notes the orderly end of the connection, which may be the end of a body."""
        if self._left is None and self._chunks is None:
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Notes that the connection was lost."""
        if self._body is not None:
            self._body.fail(error)

    # ----------------------------------------------------------------------------------- heads

    def _read_heads(self, data: bytes) -> ResponseMessage | None:
        held = self._held
        if held:
            held += data
            start = max(0, len(held) - len(data) - len(_HEAD_END) + 1)
            data = bytes(held) if held.find(_HEAD_END, start) >= 0 else b""
        while True:
            # A head that llhttp takes ends with the first empty line.
            end = data.find(_HEAD_END) + len(_HEAD_END)
            if end < len(_HEAD_END):
                self._hold(data)
                return None
            head, rest = data[:end], data[end:]
            held.clear()
            message = self._read_head(head)
            if message.status >= 200 or message.status == _SWITCHING:
                self._in_head = False
                self._begin_body(message, head, rest)
                return message
            # An interim response, which is not relayed (proxy.md A1), and has no body.
            data = rest

    def _hold(self, data: bytes) -> None:
        held, limits = self._held, self._limits
        held += data
        if held[:7] != _HTTP_1[: len(held)]:  # at once: who speaks otherwise may wait for an answer
            raise BadResponse("the response is not one of HTTP/1")
        longest = max(limits.line, limits.field)
        if len(held) > longest and len(held) - held.rfind(b"\n") > longest:
            raise BadResponse("a line of the response is longer than the limits allow")
        if len(held) > longest * (limits.fields + 1):
            raise BadResponse("the response's head is larger than the limits allow")

    def _read_head(self, head: bytes) -> ResponseMessage:
        # A new one for each head: the last one may wait for a body that doesn't come, or that is
        # read without it. It costs a quarter of a microsecond.
        self._parser = parser = httptools.HttpResponseParser(self)
        self._fields: Fields = []
        self._reason = b""
        self._head_read = self._should_close = False
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # At the end of the head of a 101, llhttp stops.
            if not self._head_read:
                raise BadResponse("the response can't be parsed") from error
        status, fields, limits = parser.get_status_code(), self._fields, self._limits
        self._fields = []  # a parser at rest keeps nothing of a response
        if head[:9] not in (_HTTP_11, _HTTP_10) or status < 100:
            raise BadResponse("the response is not one of HTTP/1")
        if self._reason not in _USUAL_REASONS and _CONTROL(self._reason):
            raise BadResponse("the reason phrase has a control character")
        if b" \r" in head or b"\t\r" in head:
            fields = [(name, value.rstrip(b" \t")) for name, value in fields]
        small = len(head) <= limits.field
        longest = 0 if small else max(map(len, head.split(b"\r\n")))
        if longest > limits.field or len(fields) > limits.fields:
            raise BadResponse("the response's head is larger than the limits allow")
        return ResponseMessage(status, self._reason, fields, should_close=self._should_close)

    def _begin_body(self, message: ResponseMessage, head: bytes, rest: bytes) -> None:
        http10 = head[:9] == _HTTP_10
        if message.status == _SWITCHING:
            if not self._upgrade or http10:
                raise BadResponse("the response is an upgrade that was not asked for")
            self.tail, self.complete = rest, True
            return
        sorted_fields = sort_response_fields(message.fields)
        message.forward = sorted_fields.forward
        message.length = length = _length(sorted_fields)
        if self._without_body or message.status in _NO_BODY:
            # Such a response has no body, whatever its framing says (RFC 9112 section 6.3).
            self.complete, self.excess = True, bool(rest)
        elif length is not None and len(rest) >= int(length):
            # The usual case: all of it arrived with the head.
            left = int(length)
            self.complete, self.excess = True, len(rest) > left
            message.body = BodyStream.of(rest[:left]) if left else EMPTY
        else:
            self._left = None if length is None else int(length)
            if sorted_fields.codings:
                # RFC 9112 section 6.1: HTTP/1.0 has no chunks, so its end is not to be trusted.
                message.should_close = message.should_close or http10
                self._chunks = ChunkReader(self._limits.field)
            message.body = self._body = self._new_body()
            self.feed(rest)

    # ---------------------------------------------------------------------------------- bodies

    def _read_plain(self, data: bytes) -> None:
        body, left = self._body, self._left
        assert body is not None
        if left is None:
            body.append(data)
        elif len(data) < left:
            self._left = left - len(data)
            body.append(data)
        else:
            body.append(data[:left])
            self.excess = len(data) > left
            self._finish()

    def _read_chunks(self, chunks: ChunkReader, data: bytes) -> None:
        body = self._body
        assert body is not None
        try:
            body.append(chunks.feed(data))
        except BadChunks as error:
            failure = BadResponse("the response's chunks can't be parsed")
            failure.__cause__ = error
            body.fail(failure)
        else:
            if chunks.ended:
                self.excess = chunks.excess
                self._finish()

    def _finish(self) -> None:
        self.complete = True
        self._left, self._chunks = 0, None
        body, self._body = self._body, None
        if body is not None:
            body.end()

    # ------------------------------------------------------------------- what the parser calls

    def on_status(self, status: bytes) -> None:
        self._reason = status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_read, self._should_close = True, not self._parser.should_keep_alive()


def _length(head: ResponseHead) -> bytes | None:
    """The stated length, if there is one. Raises `BadResponse` if the framing is ambiguous."""
    _, lengths, codings = head
    # Two readers could disagree about where such a response ends (response smuggling).
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise BadResponse("the response's transfer coding is not `chunked`, or it has a length too")
    if len(lengths) > 1:
        raise BadResponse("the response states its length twice")
    if lengths and not (lengths[0].isdigit() and len(lengths[0]) <= _LENGTH_DIGITS):
        raise BadResponse("the response's length is not a number")
    return lengths[0] if lengths else None
