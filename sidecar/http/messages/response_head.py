"""Reads the head of a response, line by line, and decides which fields are forwarded and which are
read here (RFC 9112 sections 4 and 5, RFC 9110 section 7.6, `proxy/RULES.md`, Fields and B6 to B12).
Forwarded fields keep their order, case, duplicates and values.

A data source sends the same lines again and again: what becomes of those that hold no secret is
remembered. Knows lines. Knows no body and no connection.
"""

import re
from collections.abc import Sequence
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
from sidecar.http.messages.body import EMPTY
from sidecar.http.messages.chunks import TrailerHead
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
        b"accept-ranges",
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"date",
        b"keep-alive",
        b"server",
        b"transfer-encoding",
        b"vary",
    )
)
_MOST_LINES = 1024
_LONGEST_LINE = 128

_NO_TRAILERS = TrailerHead()


class BadResponse(Exception):
    """the response can't be read"""


class ResponseMessage:
    """One response, without the interim ones before it. `lines` are the fields to forward, each
    with its line end; `length` is the value of `Content-Length`. Without a length, the body ends
    with its last chunk if it is `chunked`, else with the connection."""

    __slots__ = (
        "body",
        "chunked",
        "empty",
        "length",
        "lines",
        "reason",
        "should_close",
        "status",
        "trailer_head",
        "upgrade",
    )

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
        """True if the server ends the connection after the response."""
        self.upgrade: Sequence[bytes] = ()
        """The values of `Upgrade`."""
        self.trailer_head = _NO_TRAILERS
        """The fields of the head about the trailers, if the response is `chunked`."""
        self.body = EMPTY

    @property
    def fields(self) -> Fields:
        """The fields to forward."""
        return decode_fields(self.lines)


class _Line(NamedTuple):
    forwarded: bytes
    """The line as it is forwarded; empty if it isn't forwarded."""
    key: bytes = b""
    """The name under which the sidecar reads the value; empty if it doesn't read it."""
    value: bytes = b""


_known: dict[bytes, _Line] = {}


def read_head(head: bytes, limits: HeadLimits) -> ResponseMessage:
    """Reads a `head`, without the empty line that ends it. Raises `BadResponse` if it could be read
    in two ways, or is larger than the `limits`."""
    lines = head.split(b"\r\n")
    small = len(head) <= limits.field or max(map(len, lines)) <= limits.field
    if not small or len(lines) > limits.fields + 1:
        raise BadResponse("the response's head is larger than the limits allow")
    http10, status, reason = _read_status_line(lines[0])
    del lines[0]
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
    chunked, length = bool(codings), lengths[0] if lengths else None
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
    """Return whether the version is HTTP/1.0, the status, and the reason phrase."""
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
