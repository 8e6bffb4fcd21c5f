"""Answers on the sidecar's own ports, and the head that all of them have (contract, section 1).

The headers are always the same few, so they are joined as bytes: no multi-dictionary is built.
Knows no route.
"""

import asyncio
from collections.abc import Awaitable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NamedTuple

from policies.ground.clock import Clock

JSON = b"application/json"


class RenderedResponse(NamedTuple):
    """What is written for one request: a head without its last line, and a body."""

    head: bytes
    body: bytes
    close: bool = False
    """Whether the connection must not carry another request."""


class Deferred(NamedTuple):
    """A promise: what was asked for is decided, and may be told once `durable` is done. `head` is
    what the request's head said."""

    head: Any
    body: bytes
    durable: asyncio.Future[None]
    more: bytes = b""
    """Further header lines, each with its end."""


Outcome = RenderedResponse | Deferred | Awaitable[RenderedResponse | Deferred]
"""What a request comes to: at once, once the disk has it, or once somebody else was asked."""


class ResponseRenderer:
    """Makes answers. The line with the date is made once a second."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._second = -1
        self._dated: dict[tuple[int, bytes], bytes] = {}

    def render(
        self,
        status: int,
        body: bytes,
        request_id: str,
        *,
        media: bytes = JSON,
        more: bytes = b"",
        close: bool = False,
    ) -> RenderedResponse:
        """`request_id` is printable ASCII; `more` is further header lines, each with its end."""
        second = self._now() // 1_000_000
        if second != self._second:
            self._second = second
            self._dated.clear()
        kind = (status, media)
        dated = self._dated.get(kind) or self._date(kind)
        head = b"%b%bX-Request-ID: %b\r\nContent-Length: %d\r\n" % (
            dated,
            more,
            request_id.encode("ascii"),
            len(body),
        )
        return RenderedResponse(head, body, close)

    def _date(self, kind: tuple[int, bytes]) -> bytes:
        status, media = kind
        dated = self._dated[kind] = (
            b"HTTP/1.1 %d %b\r\nServer: sluice\r\nDate: %b\r\nContent-Type: %b\r\n"
            b"Cache-Control: no-store\r\n"
        ) % (
            status,
            HTTPStatus(status).phrase.encode(),
            formatdate(self._second, usegmt=True).encode(),
            media,
        )
        return dated
