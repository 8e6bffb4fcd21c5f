"""Sends a response while it is made.

A reader that hangs is given up after a time; one that is slow is waited for. If the pieces stop
with an error, the connection closes without the response's end. Knows no route.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from control_api.departure import ClientLeft, until_departed
from control_api.http.stream.content_coding import CODINGS, choose
from control_api.responses.stream import EVENTS

STALL_SECONDS = 60.0
"""How long a reader may take none of the data that waits for it."""
WRITE = 256 * 1024
"""The most bytes passed on at a time: what waits for a slow reader, and how finely its progress is
seen."""
_log = logging.getLogger("sluice.http")


async def send(
    request: web.BaseRequest, response: web.StreamResponse, pieces: AsyncGenerator[bytes, None]
) -> web.StreamResponse:
    """Sends `pieces` as the body of `response`, compressed if the request allows and they need not
    be seen at once. Returns the response, complete or with its connection closed."""
    coding = None
    if response.content_type == EVENTS:
        # nginx would collect pieces until it has a buffer full.
        response.headers["X-Accel-Buffering"] = "no"
    else:
        coding = choose(request.headers.getall("Accept-Encoding", ()))
        response.headers["Vary"] = "Accept-Encoding"
    if coding is not None:
        response.headers["Content-Encoding"] = coding
    try:
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        async with aclosing(pieces), aclosing(_encoded(pieces, coding)) as body, until_departed():
            async for piece in body:
                await _write(response, piece)
        await response.write_eof()
    except (ConnectionError, ClientLeft):
        _log.info("the client closed the connection during a stream")
    except TimeoutError:
        _log.warning("gave up a stream whose reader took nothing for %.0f s", STALL_SECONDS)
        if request.transport is not None:
            request.transport.abort()
    except Exception as error:  # noqa: BLE001  too late for an error response
        _log.warning("a stream ended early: %s", error)
        if request.transport is not None:
            # Closing sends what is buffered, but not the end of the body: every client notices.
            request.transport.close()
    return response


async def _write(response: web.StreamResponse, piece: bytes) -> None:
    view = memoryview(piece)
    for at in range(0, len(view), WRITE):
        async with asyncio.timeout(STALL_SECONDS):
            await response.write(view[at : at + WRITE])


async def _encoded(
    pieces: AsyncGenerator[bytes, None], coding: str | None
) -> AsyncGenerator[bytes, None]:
    if coding is None:
        async for piece in pieces:
            yield piece
        return
    compressor = CODINGS[coding]()
    # In a thread: compressing a piece takes many milliseconds, without the interpreter's lock.
    run = asyncio.get_running_loop().run_in_executor
    try:
        async for piece in pieces:
            if compressed := await run(None, compressor.compress, piece):
                yield compressed
    except Exception:
        # What was made so far can still be read, such as the line that says why it ends.
        yield compressor.flush()
        raise
    yield await run(None, compressor.flush)
