"""Reads a request's body, and inflates it if it is compressed, within limits of size and time.
Routes and formats are for others."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from control_api.edge.route import MAX_BODY
from policies.ground.errors import Malformed, TooLarge, Unavailable

# A client that sends a byte now and then must not hold a connection forever.
BODY_SECONDS = 30.0
"""How many seconds a body may take to arrive."""


PIECE = 256 * 1024
"""Bytes that are inflated at once, and that this makes at once: in less than a millisecond."""
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""How zlib names the formats (`wbits`). `deflate` is zlib's (RFC 9110, section 8.4.1.2)."""

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
    """The body, inflated if it is compressed.

    Raises `TooLarge` over `most` bytes, compressed or not, `Malformed` if it is cut short, late or
    not encoded as it says, `ClientDisconnected` if the client goes away.
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
        raise Malformed("the body is cut short") from None
    if len(body) > most:
        raise TooLarge(f"the body is larger than {most} bytes")
    coding = ", ".join(request.headers.getall("Content-Encoding", ())).lower()
    return body if coding in ("", "identity") else await inflated(body, coding, most)


async def inflated(body: bytes, coding: str, most: int) -> bytes:
    """A compressed body as it was before, at most `most` bytes. Others get a turn after each piece.

    Raises `TooLarge`, and `Malformed` if it is not one whole body of this `coding`.
    """
    window = _WINDOWS.get(coding)
    if window is None:
        raise Malformed(f"the body's encoding is `{coding}`; expected gzip, deflate or none")
    inflater, whole, at = zlib.decompressobj(window), bytearray(), 0
    try:
        while not inflater.eof:
            # A piece at a time, since the inflater copies what it leaves of each.
            given = inflater.unconsumed_tail or body[at : (at := at + PIECE)]
            piece = inflater.decompress(given, min(PIECE, most + 1 - len(whole)))
            whole += piece
            if len(whole) > most:
                raise TooLarge(f"the body is larger than {most} bytes when it is inflated")
            if not piece and not given and not inflater.eof:
                raise Malformed("the compressed body is cut short")
            await asyncio.sleep(0)
    except zlib.error:
        raise Malformed(f"the body is not encoded with {coding}") from None
    if inflater.unused_data or at < len(body):
        raise Malformed("something follows the compressed body")
    return bytes(whole)


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
