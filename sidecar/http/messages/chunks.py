"""Encodes and decodes chunked bodies (with llhttp, exact to the byte), and decides which trailer
fields behind them may be forwarded (RFC 9110 section 6.5.1, RFC 9112 section 7.1.2).

One reader may merge trailers into the header it has acted on, and another reader may not. So a
field whose meaning would change with that is never forwarded: the whole message is refused.

Knows nothing of heads or connections, and not which sources forward trailers.
"""

import re
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import httptools

from policies.ground.errors import Malformed
from sidecar.http.headers import HOP_BY_HOP, OWN, connection_options

MAX_TRAILER_FIELDS = 32
MAX_TRAILER_BYTES = 8 * 1024
"""The most bytes of all names and values of a body's trailer fields together."""

_BEYOND = (
    f"the trailers are more than {MAX_TRAILER_FIELDS} fields or {MAX_TRAILER_BYTES} bytes, which "
    "are the most that are forwarded"
)
_TOKEN = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+").fullmatch
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*").fullmatch
_NOT_PLAIN = re.compile(rb"[^0-9a-z]")
_LONGEST_SHOWN = 64

# Framing, routing, authentication, caching, content, and whatever the sidecar judges by.
_REFUSED = HOP_BY_HOP | frozenset(
    (
        b"age", b"alt-svc", b"apikey", b"baggage", b"clear-site-data", b"date", b"dpop", b"etag",
        b"expect", b"expires", b"forwarded", b"from", b"last-event-id", b"last-modified", b"link",
        b"location", b"max-forwards", b"origin", b"pragma", b"prefer", b"priority", b"range",
        b"referer", b"refresh", b"retry-after", b"server", b"strict-transport-security",
        b"traceparent", b"tracestate", b"user-agent", b"vary", b"via", b"warning",
        b"www-authenticate",
    )
)  # fmt: skip
_REFUSED_PREFIXES = (
    b"accept-", b"access-control-", b"cache-", b"content-", b"cookie", b"if-", b"proxy-", b"sec-",
    b"set-cookie", b"surrogate-", b"x-amz-", b"x-forwarded-", b"x-original-", b"x-sluice-",
)  # fmt: skip
# These words also cover new spellings of credentials, and of fields that a proxy in front would
# set.
_REFUSED_WORDS = frozenset(
    (
        b"accept", b"auth", b"authenticate", b"authentication", b"authorization", b"client",
        b"cookie", b"credential", b"credentials", b"encoding", b"forwarded", b"host", b"ip", b"key",
        b"length", b"method", b"override", b"password", b"secret", b"session", b"signature",
        b"token", b"uri", b"url", b"user",
    )
)  # fmt: skip


class BadTrailers(Malformed):
    """the trailers can't be forwarded"""


class Trailers:
    """The trailer fields of one body as they arrive. Holds no more of them than may be
    forwarded."""

    __slots__ = ("_size", "beyond", "fields")

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.beyond = False
        """True if the trailers exceed `MAX_TRAILER_FIELDS` or `MAX_TRAILER_BYTES`. Then no trailer
        is held."""
        self._size = 0

    def add(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self.beyond or self._size > MAX_TRAILER_BYTES or len(self.fields) >= MAX_TRAILER_FIELDS:
            self.beyond = True
            self.fields.clear()
            return
        self.fields.append((name, value))


class TrailerHead(NamedTuple):
    """The values of the header fields `Trailer` and `Connection` of a message. `Trailer` announces
    which trailer fields follow the body; `Connection` names the fields that concern this connection
    only, which are not forwarded."""

    announced: Sequence[bytes] = ()
    connection: Sequence[bytes] = ()

    def announcement(self) -> bytes:
        """Return the header line `Trailer` to forward, with its line end; empty if no trailers are
        announced. Raises `BadTrailers` if a name in it may not be forwarded."""
        if not self.announced:
            return b""
        members = [part.strip(b" \t") for line in self.announced for part in line.split(b",")]
        names = [name for name in members if name]
        _check_names(names)
        dropped = connection_options(self.connection)
        kept = [name for name in names if name.lower() not in dropped]
        return b"Trailer: %b\r\n" % b", ".join(kept) if kept else b""

    def lines(self, trailers: Trailers | None) -> bytes:
        """Return the `trailers` to forward, each with its line end. Raises `BadTrailers` if one of
        them may not be forwarded."""
        fields = [] if trailers is None else trailers.fields
        if trailers is not None and trailers.beyond:
            raise BadTrailers(_BEYOND)
        _check_names([name for name, _ in fields])
        dropped: Set[bytes] = connection_options(self.connection) if fields else frozenset()
        return b"".join(
            [_line(name, value) for name, value in fields if name.lower() not in dropped]
        )


class CallTrailers(TrailerHead):
    """The same for a call of gRPC, whose client reads the trailers apart from the head, so that
    they change no meaning. All are forwarded but those that only the sidecar writes."""

    def lines(self, trailers: Trailers | None) -> bytes:
        fields = [] if trailers is None else trailers.fields
        if trailers is not None and trailers.beyond:
            raise BadTrailers(_BEYOND)
        kept = [field for field in fields if not _plain(field[0]).startswith(OWN)]
        return b"".join([_line(name, value) for name, value in kept])


def _check_names(names: Sequence[bytes]) -> None:
    if len(names) > MAX_TRAILER_FIELDS or sum(map(len, names)) > MAX_TRAILER_BYTES:
        raise BadTrailers(
            f"more than {MAX_TRAILER_FIELDS} trailers, or {MAX_TRAILER_BYTES} bytes, are announced"
        )
    plain = [_plain(name) for name in names]
    for name, each in zip(names, plain, strict=True):
        shown = name[:_LONGEST_SHOWN].decode("ascii", "backslashreplace")
        if not _TOKEN(name) or _is_refused(each):
            raise BadTrailers(
                f"`{shown}` may not be a trailer: it could change how the message is read"
            )
        # One reader would take the first, and another the last.
        if plain.count(each) > 1:
            raise BadTrailers(f"the trailer `{shown}` occurs twice")


def _plain(name: bytes) -> bytes:
    """Return the name of a field as CGI and similar interfaces read it: they can't tell `X_Sum`
    from `X-Sum`."""
    return _NOT_PLAIN.sub(b"-", name.lower())


def _is_refused(plain: bytes) -> bool:
    if plain in _REFUSED or plain.startswith(_REFUSED_PREFIXES):
        return True
    return not _REFUSED_WORDS.isdisjoint(plain.split(b"-"))


def _line(name: bytes, value: bytes) -> bytes:
    stripped = value.strip(b" \t")
    # The parser refuses these, but a line break here would be another field, or another message.
    if not _VALUE(stripped):
        raise BadTrailers("the value of a trailer has a control character")
    return b"%b: %b\r\n" % (name, stripped)


def welcomes_trailers(values: Iterable[bytes]) -> bool:
    """Return whether the values of the header `TE` say that the sender accepts trailers (RFC 9110
    section 10.1.4)."""
    return b"trailers" in connection_options(values)


# llhttp reads chunks only as the body of a message.
_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    # A chunk of no bytes would end the body.
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def last_chunk(trailer_lines: bytes = b"") -> bytes:
    """Return the last chunk, the trailers behind it, and the end of the body."""
    return b"0\r\n%b\r\n" % trailer_lines


class BadChunks(Exception):
    """the chunks can't be parsed"""


class ChunkReader:
    """Decodes one chunked body. Each line of the framing, and all trailers together, may have
    `limit` bytes. Trailers are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._silent_bytes = 0
        self._last_bytes = b""
        self.ended = False
        """True if the last chunk and the trailers have arrived."""
        self.excess = False
        """True if any bytes followed the end of the body."""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(_HEAD)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the message, and return the bytes of the body in them. Raises
        `BadChunks`."""
        failure: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # Anything else that was raised while the parser called us is a bug of ours.
            if not isinstance(error.__context__, BadChunks):
                raise
            failure = error
        except httptools.HttpParserError as error:
            failure = error
        last = data[-5:] if len(data) >= 5 else (self._last_bytes + data)[-5:]
        self._last_bytes = last
        if self.ended:
            # After the body, llhttp refuses any bytes, except that it skips empty lines. A body
            # without excess ends with exactly one empty line: after its last chunk, or after its
            # trailers.
            self.excess = failure is not None or last[-4:] != b"\r\n\r\n" or last[:1] in b"\r\n"
        else:
            # The parser keeps the beginning of a line until its end has arrived.
            self._silent_bytes += len(data)
            if failure is not None or self._silent_bytes > len(data) + self._limit:
                raise BadChunks from failure
        body = b"".join(self._parts)
        self._parts.clear()
        return body

    # ------------------------------------------------------------------- what the parser calls

    def on_message_begin(self) -> None:
        if self.ended:
            raise BadChunks

    def on_body(self, data: bytes) -> None:
        self._silent_bytes = 0
        self._parts.append(data)

    def on_message_complete(self) -> None:
        self.ended = True


class TrailerReader(ChunkReader):
    """Decodes one chunked body and also keeps its trailers. `head` has the fields of the message's
    head about trailers. Raises `BadChunks` for trailers that may not be forwarded."""

    def __init__(self, limit: int, head: TrailerHead) -> None:
        self._trailer_head = head
        self.trailers: Trailers | None = None
        super().__init__(limit)
        self.trailers = Trailers()

    def feed(self, data: bytes) -> bytes:
        body = super().feed(data)
        if self.ended:
            try:
                self._trailer_head.lines(self.trailers)
            except BadTrailers as error:
                raise BadChunks(str(error)) from error
        return body

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.trailers is not None:  # else it belongs to the head made up for the parser
            self.trailers.add(name, value)
