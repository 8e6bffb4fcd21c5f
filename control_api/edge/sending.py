"""Sends a rendered reply as an aiohttp response, either whole or piece by piece while it is made.

aiohttp keeps a response's headers in a dictionary, checks and completes them, and encodes them one
by one. Our headers are known, so a response's head is one formatted text, and head and body are
sent with one write.

A slow reader is waited for, but one that takes nothing for a minute is given up. If the pieces stop
with an error, the connection closes without the response's end.
"""

import asyncio
import logging
import re
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from importlib.util import find_spec
from typing import Protocol

from aiohttp import HttpVersion10, web
from aiohttp.abc import AbstractStreamWriter

from control_api.current_request import ClientLeft, until_departed
from control_api.edge.answers import EVENTS, HttpReply

# On every response. `Server` shows no version, and no cache may store a response that does not say
# otherwise.
_COMMON_HEADERS = {
    "Server": "sluice",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_CACHE = "Cache-Control"
# RFC 9110, section 5.5: a value with a line's end would begin another header.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECOND = 1_000_000  # microseconds


class EncodedResponse(web.StreamResponse):
    """An aiohttp response whose body is complete before it is sent."""

    def __init__(self, reply: HttpReply, request_id: str, date: str) -> None:
        """Encode the headers. Raise `ValueError` if a header's value contains a control
        character."""
        super().__init__(status=reply.status)
        self._reply = reply
        self._fields = _fields(reply, request_id, date)
        self._closing = False
        self._request: web.BaseRequest | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        self._request = request
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Send head and body. Raise `ConnectionError` if the client is gone."""
        assert not data
        request = self._request
        assert request is not None
        await request.writer.write_eof(self._encoded(request))

    @property
    def keep_alive(self) -> bool | None:
        """True if the connection stays open for another request."""
        return not self._closing and self._request is not None and self._request.keep_alive

    def force_close(self) -> None:
        self._closing = True

    def _encoded(self, request: web.BaseRequest) -> bytes:
        reply, body = self._reply, self._reply.body
        bodiless = request.method == "HEAD"
        # RFC 9110, section 8.6: a length here is that of the body that a GET would have got.
        length = f"Content-Length: {len(body)}\r\n" if body or not bodiless else ""
        connection = ""
        if request.version == HttpVersion10:
            status = _status_line("1.0", reply.status)
            connection = "Connection: keep-alive\r\n" if self.keep_alive else ""
        else:
            status = _status_line("1.1", reply.status)
            connection = "" if self.keep_alive else "Connection: close\r\n"
        head = f"{status}{self._fields}{length}{connection}\r\n".encode()
        return head if bodiless else head + body


class ReplyEncoder:
    """Makes aiohttp responses from the replies of a listener. `now` is the wall clock, in
    microseconds since 1970."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._date = (-1, "")

    def response(self, reply: HttpReply, request_id: str, /) -> EncodedResponse:
        """Encode the reply, except for the header lines that depend on the connection."""
        second = self._now() // _SECOND
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True))
        return EncodedResponse(reply, request_id, self._date[1])


def to_stream(reply: HttpReply, request_id: str) -> web.StreamResponse:
    """Make an aiohttp response with the reply's status and headers, whose body is then sent piece
    by piece."""
    headers = {
        **_COMMON_HEADERS,
        "Content-Type": reply.content_type,
        "X-Request-ID": request_id,
        **reply.headers,
    }
    return web.StreamResponse(status=reply.status, headers=headers)


def _fields(reply: HttpReply, request_id: str, date: str) -> str:
    """Write the header lines that don't depend on the connection."""
    constant = _constant_fields(reply.content_type, reply.headers.get(_CACHE))
    lines = [f"{constant}X-Request-ID: {request_id}\r\nDate: {date}\r\n"]
    for name, value in reply.headers.items():
        if name == _CACHE:
            continue
        if _FORBIDDEN.search(value):
            raise ValueError(f"the header `{name}` contains a control character")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


@lru_cache(maxsize=64)
def _constant_fields(content_type: str, cache: str | None) -> str:
    headers = {**_COMMON_HEADERS, "Content-Type": content_type}
    if cache is not None:
        headers[_CACHE] = cache
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@lru_cache(maxsize=128)
def _status_line(version: str, status: int) -> str:
    return f"HTTP/{version} {status} {HTTPStatus(status).phrase}\r\n"


GZIP_LEVEL = 1
"""The fastest compression level. A higher one gains little: hashes and salts hardly compress, and
the rest compresses well at any level."""
ZSTD_LEVEL = 1
_GZIP_WINDOW = 31  # `zlib`: the largest window, with a gzip header and trailer


class Compressor(Protocol):
    """Compresses a stream of bytes: call `compress` for each piece, then `flush` once."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _gzip() -> Compressor:
    return zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_WINDOW)


def _zstd() -> Compressor:
    from zstandard import ZstdCompressor  # an extra: most installations do without

    return ZstdCompressor(level=ZSTD_LEVEL).compressobj()


# In the order of preference among codings that the client likes equally.
CODINGS: dict[str, Callable[[], Compressor]] = {
    **({"zstd": _zstd} if find_spec("zstandard") else {}),
    "gzip": _gzip,
}


def choose(accepted: Sequence[str]) -> str | None:
    """Choose the content coding of a response from the values of the request's `Accept-Encoding`.
    None means uncompressed."""
    weights: dict[str, float] = {}
    for each in ",".join(accepted).split(","):
        name, _, parameter = each.partition(";")
        key, _, value = parameter.strip().partition("=")
        try:
            weights[name.strip().lower()] = float(value) if key.strip() == "q" else 1.0
        except ValueError:
            continue  # not a weight: as if the coding were not listed
    best, most = None, 0.0
    for coding in CODINGS:
        # `*` is not taken up: a client that does not name a coding may not be able to read it.
        weight = weights.get("x-gzip" if coding == "gzip" and "gzip" not in weights else coding, 0)
        if weight > most:
            best, most = coding, weight
    return best


STALL_SECONDS = 60.0
"""The most seconds that a reader may take none of the data that waits for it."""
WRITE = 256 * 1024
"""The most bytes written at a time. It limits what is buffered for a slow reader, and is the step
in which the reader's progress is measured."""
_log = logging.getLogger("sluice.http")


async def send(
    request: web.BaseRequest, response: web.StreamResponse, pieces: AsyncGenerator[bytes, None]
) -> web.StreamResponse:
    """Send `pieces` as the body of `response`, compressed if the request allows it and the pieces
    need not arrive at once. Return the response, complete or with its connection closed."""
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
