"""Reads a request's body, within limits of size and time. Knows no route and no format."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from control_api.http.route import MAX_BODY
from policies.ground.errors import Malformed, TooLarge, Unavailable

# A client that sends a byte now and then must not hold a connection forever.
BODY_SECONDS = 30.0
"""How many seconds a body may take to arrive."""


MAX_LARGE = 6
"""The maximum number of requests with large bodies at a time: each holds its body in memory."""
MAX_OF_ONE = 3
"""The maximum number of one tenant's, so that it does not hold up the others."""


class LargeBodies:
    """Counts the requests with large bodies under way."""

    def __init__(self) -> None:
        self._of: Counter[object] = Counter()

    @contextmanager
    def one(self, tenant: object) -> Iterator[None]:
        """Serve one request. Raises `Unavailable` if there are too many; it may be sent again."""
        if self._of[tenant] >= MAX_OF_ONE or self._of.total() >= MAX_LARGE:
            raise Unavailable(
                f"{self._of.total()} requests with large bodies are being served already "
                f"(at most {MAX_OF_ONE} of a tenant): try again later"
            )
        self._of[tenant] += 1
        try:
            yield
        finally:
            self._of[tenant] -= 1
            if not self._of[tenant]:
                del self._of[tenant]


class ClientDisconnected(Malformed):
    """the client disconnected before the body was complete"""


async def read_body(request: web.BaseRequest, most: int = MAX_BODY) -> bytes:
    """The decompressed body.

    Raises `TooLarge` over `most` bytes, `Malformed` if it is cut short or late,
    `ClientDisconnected` if the client goes away.
    """
    # Refuse before anything is read. A body without `Content-Length` is cut off during the read.
    if (request.content_length or 0) > most:
        raise TooLarge(f"the body is larger than {most} bytes")
    try:
        if request.content.is_eof():
            # The body came with the head, as most do: it needs no timer, and no turn of the loop.
            body = request.content.read_nowait()
        else:
            await _send_continue(request)
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read(request, most)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
    except ConnectionError:
        raise ClientDisconnected from None
    except web.RequestPayloadError:
        raise Malformed("the body is cut short, or not encoded as its header says") from None
    if len(body) > most:
        raise TooLarge(f"the body is larger than {most} bytes")
    return body


async def _read(request: web.BaseRequest, most: int) -> bytes:
    """The body, or its beginning if it has more than `most` bytes. aiohttp's own `read` has one
    limit for all routes."""
    body = bytearray()
    while len(body) <= most and (chunk := await request.content.readany()):
        body += chunk
    return bytes(body)


async def _send_continue(request: web.BaseRequest) -> None:
    """Invite the body of a client that sent `Expect: 100-continue` (RFC 9110, section 10.1.1)."""
    transport = request.transport
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    if expects and transport is not None and request.version == (1, 1):
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
