"""Reads a request's body within a limit of size and time. Knows no route."""

import asyncio

from aiohttp import ClientError, StreamReader
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from policies.ground.errors import Malformed, SluiceError, TooLarge
from sidecar.http.body_budget import Lease

MAX_BODY = 1024 * 1024
"""Bytes (contract, section 1)."""

BODY_SECONDS = 10.0


class BodyTooSlow(SluiceError):
    """the body did not arrive in time"""

    status = 408


def read_complete(body: StreamReader) -> bytes:
    """Return a body that has arrived in full, as most do with their head. Raises `TooLarge`."""
    read = body.read_nowait()
    if len(read) > MAX_BODY:
        raise TooLarge(f"the body is larger than {MAX_BODY} bytes")
    return read


async def read_arriving(body: StreamReader, length: int, lease: Lease) -> bytes:
    """Read a body that is still arriving. `length` is its `Content-Length`, 0 where unknown.

    Raises `TooLarge`, `Malformed` where the framing breaks, `BodyTooSlow`, `BodyBudgetExceeded`
    where `lease` can't grow that far, and `ConnectionError` where the client hangs up.
    """
    # Refuse by the stated length, before a byte of the body is read.
    if length > MAX_BODY:
        raise TooLarge(f"the body is larger than {MAX_BODY} bytes")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await collect(body, MAX_BODY, lease)
    except TimeoutError:
        raise BodyTooSlow(f"the body did not arrive within {BODY_SECONDS:g} s") from None
    except ConnectionError:
        raise
    except (RequestPayloadError, HttpProcessingError, ClientError) as error:
        # aiohttp reports an early end and bad framing alike.
        raise Malformed("the body ended early, or its framing is broken") from error


async def collect(body: StreamReader, limit: int, lease: Lease) -> bytes:
    """Read a body to its end. Raises `TooLarge` beyond `limit` bytes, `BodyBudgetExceeded`, and
    the error that ends a body early."""
    read = bytearray()
    while chunk := await body.readany():
        if len(read) + len(chunk) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
        # Count the bytes before keeping them: the budget must hold at every moment.
        lease.grow(len(chunk))
        read += chunk
    return bytes(read)
