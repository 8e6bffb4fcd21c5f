"""Turns a reply into the response that aiohttp sends. Knows no route.

aiohttp keeps a response's headers in a dictionary, checks and completes them, and encodes them one
by one. Ours are known, so a head is one formatted text, and head and body are one write.
"""

import re
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion10, web
from aiohttp.abc import AbstractStreamWriter

from control_api.http.reply import HttpReply

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
    """A response with all of its body at hand."""

    def __init__(self, reply: HttpReply, request_id: str, date: str) -> None:
        """Raises `ValueError` if a header's value contains a control character."""
        super().__init__(status=reply.status)
        self._reply = reply
        self._fields = _fields(reply, request_id, date)
        self._closing = False
        self._asked: web.BaseRequest | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """aiohttp calls this before `write_eof`."""
        self._asked = request
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Sends head and body. Raises `ConnectionError` if the client is gone."""
        assert not data
        request = self._asked
        assert request is not None
        await request.writer.write_eof(self._encoded(request))

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection stays open for another request."""
        return not self._closing and self._asked is not None and self._asked.keep_alive

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
    """Makes the responses of a listener. `now` is the wall clock, in microseconds since 1970."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._date = (-1, "")

    def response(self, reply: HttpReply, request_id: str, /) -> EncodedResponse:
        """The reply, encoded except for what depends on the connection."""
        second = self._now() // _SECOND
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True))
        return EncodedResponse(reply, request_id, self._date[1])


def to_stream(reply: HttpReply, request_id: str) -> web.StreamResponse:
    """The head of a response whose body is sent piece by piece."""
    headers = {
        **_COMMON_HEADERS,
        "Content-Type": reply.content_type,
        "X-Request-ID": request_id,
        **reply.headers,
    }
    return web.StreamResponse(status=reply.status, headers=headers)


def _fields(reply: HttpReply, request_id: str, date: str) -> str:
    """The header lines that don't depend on the connection."""
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
