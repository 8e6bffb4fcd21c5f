"""Reads the body of a request within limits of size, time and memory. Knows no review."""

import asyncio

from aiohttp import web

from policies.ground.errors import Malformed, TooLarge, Unavailable

MAX_BODY = 3 * 1024 * 1024
"""The API server accepts no larger object."""
BODY_SECONDS = 4.0
"""How many seconds a body may take. The API server gives up after 5."""
MAX_HELD = 32 * 1024 * 1024
"""How many bytes of bodies are held at once, so that many large reviews can't use up the memory."""
SMALL = 128 * 1024
"""Bodies up to this size are read without being counted; the number of connections limits them."""


class BodyReader:
    """Reads bodies, and counts what the large ones hold."""

    def __init__(self) -> None:
        self._held = 0

    def reserve(self, request: web.BaseRequest) -> int:
        """Reserve memory for the body; the caller releases what is returned. Raises `TooLarge`
        or `Unavailable` before anything is read."""
        length = request.content_length
        if request.headers.get("Content-Encoding", "identity") != "identity":
            # Nothing that the API server sends is compressed, and a bomb would be.
            raise Malformed("the body is compressed, which is not supported")
        if length is None:
            length = MAX_BODY  # chunked: it may become this long
        if length > MAX_BODY:
            raise TooLarge(f"the body has {length} bytes, over the limit of {MAX_BODY}")
        if length <= SMALL:
            return 0
        if self._held + length > MAX_HELD:
            raise Unavailable("too many large reviews at once")
        self._held += length
        return length

    def release(self, reserved: int) -> None:
        self._held -= reserved

    async def read(self, request: web.BaseRequest) -> bytes:
        """The whole body. Raises `Malformed` if it is late or cut short, `TooLarge`."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await _whole(request)
        except TimeoutError:
            raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
        except (ConnectionError, web.RequestPayloadError):
            raise Malformed("the body is cut short") from None


async def _whole(request: web.BaseRequest) -> bytes:
    pieces: list[bytes] = []
    length = 0
    async for piece in request.content.iter_any():
        length += len(piece)
        if length > MAX_BODY:
            raise TooLarge(f"the body is over the limit of {MAX_BODY} bytes")
        pieces.append(piece)
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]
