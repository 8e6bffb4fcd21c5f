"""Reads a request's body within a limit of size and time. Knows no route."""

import asyncio

from policies.ground.errors import Malformed, SluiceError, TooLarge
from sidecar.http.body_budget import Lease
from sidecar.http.body_buffer import BodyBuffer
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.request_parser import BrokenFraming

MAX_BODY = 1024 * 1024
"""Bytes (`CONTRACT.md`, Requests)."""

BODY_SECONDS = 10.0


class BodyTooSlow(SluiceError):
    """the body did not arrive in time"""

    status = 408


def take_whole(body: BodyStream, stated: int, limit: int, lease: Lease) -> bytes | None:
    """The body, if it has come with its head, as nearly all do; else None. `stated` is its
    `Content-Length`, 0 where unknown. Raises `TooLarge` beyond `limit` bytes, and
    `BodyBudgetExceeded` where `lease` can't grow that far."""
    # Refused by the stated length, before a byte of it is read.
    if stated > limit or body.total_bytes > limit:
        raise TooLarge(f"the body is larger than {limit} bytes")
    if not body.complete:
        return None
    lease.grow(body.total_bytes)
    return body.take()


async def read_whole(
    body: BodyStream, stated: int, limit: int, seconds: float, lease: Lease
) -> bytes:
    """Like `take_whole`, but reads the body to its end.

    Raises too: `Malformed` where the framing breaks, `BodyTooSlow` after `seconds`, and
    `ConnectionError` where the client hangs up.
    """
    whole = take_whole(body, stated, limit, lease)
    if whole is not None:
        return whole
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    buffer = BodyBuffer(stated or limit, lease)
    try:
        while part := await body.next(max(0.0, end - loop.time())):
            if buffer.length + len(part) > limit:
                raise TooLarge(f"the body is larger than {limit} bytes")
            buffer.append(part)
            part = b""  # not held while the next is waited for
        return buffer.take()
    except TimeoutError:
        raise BodyTooSlow(f"the body did not arrive within {seconds:g} s") from None
    except BrokenFraming as error:
        raise Malformed("the body ended early, or its framing is broken") from error
