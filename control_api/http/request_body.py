"""Reads a request's body, within limits of size and time. Knows no route and no format."""

import asyncio

from aiohttp import web

from control_api.http.route import MAX_BODY
from policies.ground.errors import Malformed, TooLarge

# A client that sends a byte now and then must not hold a connection forever.
BODY_SECONDS = 30.0
"""How many seconds a body may take to arrive."""


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
                body = await request.read()
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"the body is larger than {MAX_BODY} bytes") from None
    except ConnectionError:
        raise ClientDisconnected from None
    except web.RequestPayloadError:
        raise Malformed("the body is cut short, or not encoded as its header says") from None
    # aiohttp's `read` stops at `MAX_BODY`. A body read at once, or a lower limit, is checked here.
    if len(body) > most:
        raise TooLarge(f"the body is larger than {most} bytes")
    return body


async def _send_continue(request: web.BaseRequest) -> None:
    """Invite the body of a client that sent `Expect: 100-continue` (RFC 9110, section 10.1.1)."""
    transport = request.transport
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    if expects and transport is not None and request.version == (1, 1):
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
