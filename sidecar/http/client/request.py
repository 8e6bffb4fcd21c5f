"""A request to a server, without its framing, which each version of HTTP does in its own way, and
the form that HTTP/1.1 gives it."""

from typing import NamedTuple

from sidecar.http.messages.body import BodyReader
from sidecar.http.messages.chunks import TrailerHead, encode_chunk, last_chunk


class Origin(NamedTuple):
    """Where requests go: `host` is the value of the header `Host`, `prefix` comes before each
    target, and `scheme` is `https` above TLS, otherwise `http`."""

    host: str
    prefix: str
    scheme: bytes
    host_line: bytes
    """The rest of a request line of HTTP/1.1, and the header `Host`."""

    @classmethod
    def of(cls, host: str, prefix: str, scheme: str) -> "Origin":
        host_line = f" HTTP/1.1\r\nHost: {host}\r\n".encode()
        return cls(host, prefix, scheme.encode(), host_line)


class UpstreamRequest(NamedTuple):
    """A request to the data source.

    `lines` are its encoded header fields, each with its line end, without those that frame the
    body: `length` is the value of `Content-Length`, if any, and `chunked` says whether HTTP/1.1
    sends the body in chunks. `body` holds the bytes of a body that has arrived, `stream` is the
    reader of one that is still arriving.
    """

    method: str
    target: str
    lines: bytes
    length: bytes | None = None
    chunked: bool = False
    body: bytes = b""
    stream: BodyReader | None = None
    upgrade: bool = False
    """True if the request asks to switch to another protocol."""
    trailer_lines: bytes = b""
    """The trailers of a chunked body that has arrived, each with its line end."""
    trailers: TrailerHead | None = None
    """The head's fields about the trailers of `stream`, if trailers are forwarded; otherwise
    None."""

    def with_body(self, body: bytes) -> "UpstreamRequest":
        """Return the same request with `body`, all of it, in place of its own body."""
        length = None if self.chunked else b"%d" % len(body)
        return self._replace(
            body=body, length=length, stream=None, trailer_lines=b"", trailers=None
        )

    @property
    def safe(self) -> bool:
        """True for a GET or HEAD without a body, which may be sent twice even if the data source
        has read it (RFC 9110 section 9.2.2)."""
        return self.method in ("GET", "HEAD") and self.stream is None and not self.body

    @property
    def has_body(self) -> bool:
        return bool(self.body or self.trailer_lines) or self.stream is not None


def encode(request: UpstreamRequest, origin: Origin) -> bytes:
    """Return a request as HTTP/1.1 sends it, as far as its body has arrived."""
    method, target, lines, length, chunked, body, stream, _, trailer_lines, _ = request
    line = f"{method} {origin.prefix}{target}".encode()
    framing = b"" if length is None else b"Content-Length: %b\r\n" % length
    if chunked:
        framing = b"Transfer-Encoding: chunked\r\n"
        if stream is None:
            body = encode_chunk(body) + last_chunk(trailer_lines)
    return b"%b%b%b%b\r\n%b" % (line, origin.host_line, lines, framing, body)
