"""Parses the responses on one connection: their heads line by line, and their bodies by their
length, by their chunks, or up to the end of the connection (RFC 9112 sections 4 to 7).

Decides which fields are forwarded and which ones the sidecar reads (RFC 9110 section 7.6,
`proxy/RULES.md`, Fields and B6 to B12). Forwarded fields keep their order, case, duplicates and
values. A data source sends the same lines again and again, so the result is remembered for lines
that hold no secret.

Bytes that follow the end of a response are noticed, to the byte, since they must never become the
next response (response smuggling). Knows bytes and messages. Knows no connection.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from sidecar.http.headers import (
    END_TO_END,
    HOP_BY_HOP,
    OWN,
    PERSISTENCE,
    connection_options,
    decode_fields,
)
from sidecar.http.messages.body import EMPTY, BodyStream
from sidecar.http.messages.chunks import (
    BadChunks,
    BadTrailers,
    ChunkReader,
    TrailerHead,
    TrailerReader,
)
from sidecar.http.messages.request_parser import Fields, HeadLimits

SWITCHING = 101
NO_BODY = frozenset((204, 304))

_STATUS_LINE = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?"
).fullmatch
# A name is a token, so neither white space before the colon nor a folded line is one; a value has
# no control characters but tabs.
_FIELD = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)").fullmatch
_LENGTH = re.compile(rb"[0-9]{1,19}").fullmatch  # 2**63 has 19 digits

# Read here and not forwarded.
_READ = frozenset((b"connection", b"content-length", b"trailer", b"transfer-encoding", b"upgrade"))
# The names of the lines that are remembered, since their values hold no secret.
_REMEMBERED = frozenset(
    (
        b"accept-ranges", b"cache-control", b"connection", b"content-encoding", b"content-length",
        b"content-type", b"date", b"keep-alive", b"server", b"transfer-encoding", b"vary",
    )
)  # fmt: skip
_MOST_LINES = 1024
_LONGEST_LINE = 128

_NO_TRAILERS = TrailerHead()


class BadResponse(Exception):
    """the response can't be read"""


class ResponseMessage:
    """One response; interim (1xx) responses before it are dropped. `lines` are the fields to
    forward, each with its line end; `length` is the value of `Content-Length`. Without a length,
    the body ends with its last chunk, or where HTTP/2 says, if it is `chunked`; otherwise with the
    connection."""

    __slots__ = (
        "body", "chunked", "empty", "length", "lines", "reason", "should_close", "status",
        "trailer_head", "upgrade",
    )  # fmt: skip

    def __init__(
        self, status: int, reason: bytes, lines: bytes, length: bytes | None, *, chunked: bool
    ) -> None:
        self.status = status
        self.reason = reason
        self.lines = lines
        self.length = length
        self.chunked = chunked
        self.empty = status in NO_BODY
        """True if the response has no body, regardless of its framing (RFC 9112 section 6.3)."""
        self.should_close = not chunked and length is None and not self.empty
        """True if the server ends the connection after this response."""
        self.upgrade: Sequence[bytes] = ()
        """The values of the header `Upgrade`."""
        self.trailer_head = _NO_TRAILERS
        """The header fields about the trailers, if the response is `chunked`."""
        self.body = EMPTY

    @property
    def fields(self) -> Fields:
        return decode_fields(self.lines)


class _Line(NamedTuple):
    forwarded: bytes
    """The header line as it is forwarded; empty if it isn't forwarded."""
    key: bytes = b""
    """The lower-case name under which the sidecar reads the value; empty if it doesn't read it."""
    value: bytes = b""


_known: dict[bytes, _Line] = {}


def read_head(head: bytes, limits: HeadLimits) -> ResponseMessage:
    """Parse the `head` of a response, given without the empty line that ends it. Raises
    `BadResponse` if it could be read in two ways, or exceeds the `limits`."""
    lines = head.split(b"\r\n")
    small = len(head) <= limits.field or max(map(len, lines)) <= limits.field
    if not small or len(lines) > limits.fields + 1:
        raise BadResponse("the response's head is larger than the limits allow")
    http10, status, reason = _read_status_line(lines[0])
    del lines[0]
    return _message(status, reason, lines, http10=http10)


def read_fields(fields: Sequence[tuple[bytes, bytes]], limits: HeadLimits) -> ResponseMessage:
    """Return a response from the `fields` of its head in HTTP/2, the first of which is its status
    (RFC 9113 section 8.3.2). Raises `BadResponse` as `read_head` does."""
    (_, status), *others = fields
    lines = [b"%b: %b" % field for field in others]
    if len(lines) > limits.fields or any(len(line) > limits.field for line in lines):
        raise BadResponse("the response's head is larger than the limits allow")
    return _message(int(status), b"", lines, framed=True)


def _message(
    status: int, reason: bytes, lines: list[bytes], *, http10: bool = False, framed: bool = False
) -> ResponseMessage:
    """Return a response from the lines of its fields. `framed` says that the connection shows where
    the body ends, as HTTP/2 does."""
    forward: list[bytes] = []
    read: dict[bytes, list[bytes]] = {}
    for line in lines:
        forwarded, key, value = _known.get(line) or _read_line(line)
        if forwarded:
            forward.append(forwarded)
        elif key:
            read.setdefault(key, []).append(value)
    options: set[bytes] = set()
    if b"connection" in read:
        options = connection_options(read[b"connection"])
        # A response that names an end-to-end field keeps it. A request is refused for that; but no
        # decision rests on a response's fields.
        dropped = options - END_TO_END - PERSISTENCE
        if dropped:
            forward = [line for line in forward if line.partition(b":")[0].lower() not in dropped]
    lengths, codings = read.get(b"content-length", []), read.get(b"transfer-encoding", [])
    # Two readers could disagree about where such a response ends (response smuggling).
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise BadResponse("the response's transfer coding is not `chunked`, or it has a length too")
    if len(lengths) > 1:
        raise BadResponse("the response states its length twice")
    length = lengths[0] if lengths else None
    chunked = bool(codings) or (framed and length is None)
    message = ResponseMessage(status, reason, b"".join(forward), length, chunked=chunked)
    if chunked and (b"trailer" in read or options):
        message.trailer_head = TrailerHead(read.get(b"trailer", ()), read.get(b"connection", ()))
    # RFC 9112 section 6.1: HTTP/1.0 has no chunks, so their end is not to be trusted.
    if b"close" in options or (http10 and (chunked or b"keep-alive" not in options)):
        message.should_close = True
    if status == SWITCHING:
        if http10:
            raise BadResponse("a response of HTTP/1.0 switches protocols")
        message.upgrade, message.should_close = read.get(b"upgrade", ()), True
    return message


@lru_cache(maxsize=32)  # few, since each may be as long as a field
def _read_status_line(line: bytes) -> tuple[bool, int, bytes]:
    """Return three parts of a status line: True if the version is HTTP/1.0, the status, and the
    reason phrase. Raises `BadResponse`."""
    found = _STATUS_LINE(line)
    if found is None:
        raise BadResponse("the response is not one of HTTP/1")
    minor, status, reason = found.groups(b"")
    return minor == b"0", int(status), reason


def _read_line(line: bytes) -> _Line:
    found = _FIELD(line)
    if found is None:
        raise BadResponse("a header field of the response can't be parsed")
    name, value = found[1], found[2].strip(b" \t")
    lower = name.lower()
    if lower == b"content-length" and not _LENGTH(value):
        raise BadResponse("the response's length is not a number")
    if lower in _READ:
        read = _Line(b"", lower, value)
    # RFC 7838: a client that followed an alternative service would bypass the sidecar. And an event
    # id that the sidecar did not issue must not look like one.
    elif lower in HOP_BY_HOP or lower == b"alt-svc" or lower.replace(b"_", b"-").startswith(OWN):
        read = _Line(b"")
    else:
        read = _Line(b"%b: %b\r\n" % (name, value))
    if lower in _REMEMBERED and len(line) <= _LONGEST_LINE:
        # The data source chooses the values, so there may be many.
        if len(_known) >= _MOST_LINES:
            _known.clear()
        _known[line] = read
    return read


_HEAD_END = b"\r\n\r\n"
_HTTP_1 = b"HTTP/1."
MAX_INTERIM = 64
"""The most interim (1xx) responses before one response. A server that sends a `102` every ten
seconds may work for ten minutes."""


class InterimResponses:
    """Counts the interim responses before one response. They are not relayed and have no body, so
    no other limit applies to them."""

    __slots__ = ("_bytes", "_count", "_limits")

    def __init__(self, limits: HeadLimits) -> None:
        self._limits = limits
        self._count = self._bytes = 0

    def count(self, size: int) -> None:
        """Count an interim response of `size` bytes. Raises `BadResponse` beyond the limits."""
        self._count += 1
        self._bytes += size
        if self._count > MAX_INTERIM or self._bytes > self._limits.field:
            raise BadResponse("more or larger interim responses came than the limits allow")


class ResponseParser:
    """Parses the responses on one connection; call `expect` before each. `new_body` makes the
    stream for a body that has not arrived completely. With `trailers`, the trailers of a body are
    kept, and the body fails if they may not be forwarded."""

    def __init__(
        self, limits: HeadLimits, new_body: Callable[[], BodyStream], *, trailers: bool = False
    ) -> None:
        self._limits = limits
        self._trailers = trailers
        self._new_body = new_body
        self._body: BodyStream | None = None
        """The body that is arriving; None if none is."""
        self._chunks: ChunkReader | None = None
        self._left: int | None = 0
        """The number of bytes that are missing of the body; None if that isn't known."""
        self._in_head = self._to_head = self._upgrade = False
        self._held = bytearray()
        self._interim: InterimResponses | None = None
        self.complete = True
        """True if no response is expected, or all of it has arrived."""
        self.excess = False
        """True if bytes arrived that belong to no response."""
        self.tail = b""
        """The bytes that followed the head of a 101."""

    def expect(self, *, to_head: bool = False, upgrade: bool = False) -> None:
        """Prepare for the next response. With `to_head`, it answers a HEAD and has no body; with
        `upgrade`, it may be a 101."""
        self._to_head, self._upgrade = to_head, upgrade
        self._in_head, self.complete = True, False
        self._interim = None

    def feed(self, data: bytes) -> ResponseMessage | None:
        """Parse `data`. Returns the response if the end of its head is in it, otherwise None.
        Raises `BadResponse` if the head can't be read; a broken body fails where it is read."""
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
        """Note that the server closed the connection in an orderly way, which ends a body without a
        length."""
        if self._body is not None and self._left is None and self._chunks is None:
            self._finish(self._body)

    def fail(self, error: BaseException) -> None:
        """Note that the connection was lost: a body that is still arriving fails with `error`."""
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
            self._interim = self._interim or InterimResponses(self._limits)
            self._interim.count(size)
        held += data[begin:]
        self._check_held()
        return None

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
