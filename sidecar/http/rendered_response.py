"""Renders responses of the sidecar's own ports, with the header fields that all of them share
(`CONTRACT.md`, Responses).

The header fields are always the same few, so they are joined as bytes, which is faster than a
multi-value dictionary. Knows no route.
"""

from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from policies.ground.clock import Clock
from sidecar.http.grpc.status import Failure
from sidecar.http.headers import ResponseHead

JSON = b"application/json"
NO_STORE = b"no-store"
"""The value of `Cache-Control`: a response from a cache would be neither decided anew nor
recorded."""


class RenderedResponse(NamedTuple):
    """The bytes of one response: a head without its final empty line, and a body."""

    head: bytes
    body: bytes
    close: bool = False
    """True if the connection closes after the response."""

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        """Return the whole response as bytes, as `sidecar.http.server.request.Response`
        describes."""
        if not keep_alive:
            ending = b"Connection: close\r\n\r\n"
        else:
            ending = b"Connection: keep-alive\r\n\r\n" if http10 else b"\r\n"
        return b"%b%b%b" % (self.head, ending, b"" if omit_body else self.body)

    def split(self) -> tuple[ResponseHead, bytes]:
        """Return the head and the body, as `sidecar.http.server.request.Response` describes."""
        line, _, lines = self.head.partition(b"\r\n")
        lines, _, length = lines.rpartition(b"Content-Length: ")
        return ResponseHead(int(line.split()[1]), b"", lines, length.rstrip()), self.body

    def failure(self) -> Failure | None:
        """Return None: a gRPC check door writes its answers itself, and no other of the sidecar's
        own ports serves gRPC."""
        return None


class ResponseRenderer:
    """Renders responses of the sidecar's own ports. Caches the first header lines, which change
    only once a second."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._second = -1
        self._openings: dict[tuple[int, tuple[bytes, bytes]], bytes] = {}

    def render(
        self,
        status: int,
        body: bytes,
        request_id: str,
        form: tuple[bytes, bytes] = (JSON, NO_STORE),
        extra_lines: bytes = b"",
        *,
        close: bool = False,
    ) -> RenderedResponse:
        """Return a response. `request_id` is printable ASCII; `form` is the media type and
        `Cache-Control`; each line of `extra_lines` includes its line end."""
        second = self._now() // 1_000_000
        # `Date` changes once a second, and everything else in these lines never does.
        if second != self._second:
            self._second = second
            self._openings.clear()
        kind = (status, form)
        opening = self._openings.get(kind) or self._open(kind)
        head = b"%b%bX-Request-ID: %b\r\nContent-Length: %d\r\n" % (
            opening,
            extra_lines,
            request_id.encode("ascii"),
            len(body),
        )
        return RenderedResponse(head, body, close)

    def _open(self, kind: tuple[int, tuple[bytes, bytes]]) -> bytes:
        status, form = kind
        opening = self._openings[kind] = (
            b"HTTP/1.1 %d %b\r\nServer: sluice\r\nDate: %b\r\nContent-Type: %b\r\n"
            b"Cache-Control: %b\r\n"
        ) % (
            status,
            HTTPStatus(status).phrase.encode(),
            formatdate(self._second, usegmt=True).encode(),
            *form,
        )
        return opening
