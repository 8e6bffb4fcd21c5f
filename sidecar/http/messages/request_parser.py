"""Parses the requests on one connection with llhttp, a strict parser (through httptools).

Between two pieces of bytes, it keeps nothing but the parser's own state and the head under way:
bytes that are to be parsed later stay with the connection. Refuses bytes that llhttp can't parse,
and heads beyond the limits. Doesn't judge whether a framing that llhttp accepts can be trusted.

Knows bytes and messages. Knows no connection.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import httptools

from policies.ground.connection_budget import HEAD_BYTES
from sidecar.http.messages.body import EMPTY, BodyStream
from sidecar.http.messages.chunks import Trailers

Fields = list[tuple[bytes, bytes]]

HTTP_2, HTTP_11, HTTP_10 = "2", "1.1", "1.0"


class HeadLimits(NamedTuple):
    """The limits on one head: `line` is the longest request target in bytes, `field` the longest
    header field in bytes, `fields` the most fields, and `whole` the longest head of a request in
    bytes."""

    line: int
    field: int
    fields: int
    whole: int = HEAD_BYTES


class BrokenFraming(Exception):
    """where the body ends can't be told"""


class RequestMessage:
    """One parsed request. `fields` are its header fields as they were written, without white space
    around their values. `fault` says why the request could not be read, and then everything else is
    empty; it is empty if the request was read."""

    __slots__ = (
        "body", "fault", "fields", "method", "offers_upgrade", "should_close", "target",
        "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = ""
        self.target = ""
        self.version = HTTP_11
        self.fields: Fields = []
        self.body = EMPTY
        self.should_close = False
        """True if the client wants the connection to end after this request."""
        self.offers_upgrade = False
        """True if the bytes after the head may belong to another protocol, because the request is a
        CONNECT or has the header `Upgrade`."""
        self.fault = ""


class _BeyondLimits(Exception):
    """the head is larger than a limit allows"""


Message = TypeVar("Message", bound=RequestMessage)


class RequestParser(Generic[Message]):
    """Parses the requests on one connection, and calls `on_message` with each. That happens once
    the whole request has arrived; or, if a piece ends within its body, after that piece.
    `new_message` makes the request objects, and `new_body` the stream for a body that has not
    arrived completely."""

    __slots__ = (
        "_body", "_field_bytes", "_heard", "_in_head", "_limits", "_new_body", "_new_message",
        "_on_message", "_parser", "_parts", "_reframed", "_silent_bytes", "_tail_bytes",
        "_trailer_count", "_trailers", "failed", "message",
    )  # fmt: skip

    def __init__(
        self,
        limits: HeadLimits,
        new_message: Callable[[], Message],
        new_body: Callable[[], BodyStream],
        on_message: Callable[[Message], None],
    ) -> None:
        self._limits = limits
        self._new_message = new_message
        self._new_body = new_body
        self._on_message = on_message
        self.failed = False
        """True if something could not be parsed. Nothing may be parsed after it."""
        self.reset()

    def reset(self) -> None:
        """Start over: take the next byte as the first one of a message."""
        self._parser = httptools.HttpRequestParser(self)
        self.message: Message | None = None
        """The request that has begun and not ended; None between two requests."""
        self._body: BodyStream | None = None
        self._parts: list[bytes] = []
        self._in_head = False
        self._silent_bytes = 0
        """The number of bytes in pieces for which llhttp called no callback, such as the beginning
        of a long line."""
        self._heard = False
        """True if llhttp has called any callback for the piece that is being parsed."""
        self._reframed = False
        self._trailer_count = 0
        self._trailers: Trailers | None = None
        self._field_bytes = self._tail_bytes = 0
        """`_field_bytes` counts the bytes of the complete fields in the current head, `_tail_bytes`
        those of its last, unfinished line."""

    @property
    def head_bytes(self) -> int:
        """The number of bytes held of a head that has not arrived completely; 0 outside of a
        head."""
        message = self.message
        if not self._in_head or message is None or self.failed:
            return 0
        return len(message.target) + self._field_bytes + self._tail_bytes

    def feed(self, data: bytes) -> bytes | None:
        """Parse `data`. If a request with `offers_upgrade` ends in it, returns the bytes that
        follow that request: they may not be HTTP, and are parsed only if they are fed again after
        `reset`. Otherwise returns None.

        Bytes that can't be parsed fail the body that they belong to; outside of a body, they are
        delivered as a request with `fault`.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self.message is None:
                return rest
            return self.feed(self._reframe(self.message) + rest)
        except httptools.HttpParserCallbackError as error:
            # Anything else that was raised while the parser called us is a bug of ours.
            if not isinstance(error.__context__, _BeyondLimits):
                raise
            self._fail()
            return None
        except httptools.HttpParserError:
            if self._reframed and self.message is None:
                # Something follows the request; how much does not matter, since it is never read.
                return data[-1:]
            self._fail()
            return None
        if self.message is not None and not self._in_head and self._body is None:
            self._deliver(self.message)
        # The parser keeps the beginning of a line until its end has arrived.
        self._silent_bytes = 0 if self._heard else self._silent_bytes + len(data)
        self._heard = False
        if self._silent_bytes > max(self._limits.line, self._limits.field):
            self._fail()
        if self._in_head:
            self._limit_head(data)
        return None

    def _limit_head(self, data: bytes) -> None:
        """Count the bytes of a head that is still incomplete after `data`, and fail if it is over
        the limit."""
        line = data.rfind(b"\n") + 1
        self._tail_bytes = len(data) - line if line else self._tail_bytes + len(data)
        if self.head_bytes > self._limits.whole:
            self._fail()

    def _reframe(self, message: Message) -> bytes:
        """Make a new parser for the body of `message`, whose head has been parsed, and return the
        bytes to feed it first. It is needed because a request that offers another protocol still
        has its body, but httptools stops after its head."""
        framing = [b"%b: %b\r\n" % field for field in message.fields if _frames(field[0])]
        # With `close`, the parser refuses what follows the body.
        self._parser = httptools.HttpRequestParser(self)
        self._reframed = True
        return b"POST / HTTP/1.1\r\nConnection: close\r\n%b\r\n" % b"".join(framing)

    # ------------------------------------------------------------------- what the parser calls

    def on_message_begin(self) -> None:
        if self._reframed:
            return
        self.message = self._new_message()
        self._in_head = self._heard = True
        self._trailer_count = self._field_bytes = self._tail_bytes = 0

    def on_url(self, url: bytes) -> None:
        message = self.message
        if self._reframed:
            return
        assert message is not None
        # A target that is cut by the end of a piece comes in two parts.
        message.target += url.decode("ascii")
        if len(message.target) > self._limits.line:
            raise _BeyondLimits

    def on_header(self, name: bytes, value: bytes) -> None:
        self._heard = True
        assert self.message is not None
        fields = self.message.fields
        known = len(fields) if self._in_head else self._trailer_count
        if len(name) + len(value) > self._limits.field or known >= self._limits.fields:
            raise _BeyondLimits
        if not self._in_head:
            self._trailer_count += 1
            # The source's settings, which aren't known here, say whether they are relayed.
            if self._trailers is None:
                self._trailers = Trailers()
            self._trailers.add(name, value)
            return
        self._field_bytes += len(name) + len(value) + 4  # `: ` and the end of the line
        if self._field_bytes + len(self.message.target) > self._limits.whole:
            raise _BeyondLimits
        fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        message, parser = self.message, self._parser
        assert message is not None
        if self._reframed:
            self._trailers = None  # these were the framing fields from `_reframe`
            return
        message.method = parser.get_method().decode("ascii")
        message.version = parser.get_http_version()
        message.should_close = not parser.should_keep_alive()
        message.offers_upgrade = parser.should_upgrade()
        self._in_head = False

    def on_body(self, data: bytes) -> None:
        self._heard = True
        if self._body is None:
            self._parts.append(data)
        else:
            self._body.append(data)

    def on_message_complete(self) -> None:
        message, body, parts = self.message, self._body, self._parts
        assert message is not None
        if message.offers_upgrade and not self._reframed and _has_body(message):
            return  # httptools reports an end where the body begins
        self.message = self._body = None
        trailers, self._trailers = self._trailers, None
        if body is not None:
            if trailers is not None:
                body.trailers = trailers
            body.end()
            return
        if parts or trailers is not None:
            message.body = BodyStream.of(b"".join(parts))
            parts.clear()
            if trailers is not None:
                message.body.trailers = trailers
        self._on_message(message)

    # ----------------------------------------------------------------------------------------

    def _deliver(self, message: Message) -> BodyStream:
        """Deliver a request whose body has not arrived completely, with the part that has."""
        self._body = message.body = body = self._new_body()
        for part in self._parts:
            body.append(part)
        self._parts.clear()
        self._on_message(message)
        return body

    def _fail(self) -> None:
        if self.failed:
            return
        self.failed = True
        body, in_head, message = self._body, self._in_head, self.message
        if body is None and message is not None and not in_head:
            body = self._deliver(message)
        if body is not None:
            body.fail(BrokenFraming())
            return
        # Nothing of the head is kept: an error that echoed it could disclose a credential, and the
        # connection may last a while.
        self.message, self._in_head = None, False
        unreadable = self._new_message()
        unreadable.fault = "the request is not HTTP/1.1"
        self._on_message(unreadable)


def _frames(name: bytes) -> bool:
    """Return whether the field of this name determines where the body ends."""
    return name.lower() in (b"content-length", b"transfer-encoding")


def _has_body(message: RequestMessage) -> bool:
    return message.method != "CONNECT" and any(_frames(name) for name, _ in message.fields)
