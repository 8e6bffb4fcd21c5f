"""A data source for clients of every kind, on aiohttp's own server: documents, great ones, packed
ones, streams, redirects, cookies, uploads. Its log says how each request arrived, byte for byte,
and on how many connections.

Knows nothing of sidecars. Whatever is below `/shut/` no agent should ever get.
"""

import asyncio
import gzip
import hashlib
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tests.support import waiting

DOCUMENT = b'{"id": 7, "text": "r\xc3\xa9sum\xc3\xa9"}'
GREAT = b"0123456789abcdef" * 128 * 1024
PACKED = gzip.compress(b"packed " * 500, mtime=0)
UNPACKED = b"packed " * 500
EVENTS = 4

# Between two hops: no part of what is asked.
_HOP = ("connection", "keep-alive", "proxy-connection", "expect")
_ANEW = ("host", "content-length", "transfer-encoding")


@dataclass(frozen=True)
class Arrived:
    """One request as it came. `fields` as written and in their order, without those of one hop;
    those that a proxy writes anew, the host and what frames the body, at the end."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    body: bytes = b""

    def lower(self) -> "Arrived":
        """Return the request with its fields' names in lower case."""
        return replace(self, fields=tuple((name.lower(), value) for name, value in self.fields))

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each.lower() == name.lower()]


@dataclass
class Library:
    """Its ports, plain and with TLS, and what became of every request."""

    port: int = 0
    tls_port: int = 0
    log: list[Arrived] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)
    """The ports that requests came from."""
    lost: int = 0
    """Requests whose client left before the end of the answer."""
    heard: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released by a client for each event that it has got: only then comes the next."""
    taken: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released here for each part of an upload that has arrived."""

    @property
    def targets(self) -> list[str]:
        return [each.target for each in self.log]

    def clear(self) -> None:
        self.log.clear()
        self.connections.clear()
        self.lost = 0


Handler = Callable[[Library, web.Request], Awaitable[web.StreamResponse]]


def _note(library: Library, request: web.Request, body: bytes) -> None:
    fields = [(name.decode(), value.decode("latin-1")) for name, value in request.raw_headers]
    kept = [each for each in fields if each[0].lower() not in _HOP]
    said = [each for each in kept if each[0].lower() not in _ANEW]
    said += sorted((name.lower(), value) for name, value in kept if name.lower() in _ANEW)
    library.log.append(Arrived(request.method, request.raw_path, tuple(said), body))
    assert request.transport is not None
    library.connections.add(request.transport.get_extra_info("peername")[1])


async def _document(_library: Library, _request: web.Request) -> web.StreamResponse:
    answer = web.Response(body=DOCUMENT, content_type="application/json")
    answer.headers["ETag"] = '"7"'
    answer.headers.add("X-Shelf", "one")
    answer.headers.add("X-Shelf", "two")
    return answer


async def _great(_library: Library, _request: web.Request) -> web.StreamResponse:
    return web.Response(body=GREAT)


async def _stream(_library: Library, request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    for at in range(0, len(GREAT), 70_000):
        await answer.write(GREAT[at : at + 70_000])
    return answer


async def _packed(_library: Library, _request: web.Request) -> web.StreamResponse:
    return web.Response(body=PACKED, headers={"Content-Encoding": "gzip"})


async def _moved(_library: Library, request: web.Request) -> web.StreamResponse:
    to = "/shut/secret" if request.path.endswith("/shut") else "/open/document"
    return web.Response(status=302, headers={"Location": to})


async def _cookies(_library: Library, _request: web.Request) -> web.StreamResponse:
    answer = web.Response(body=b"baked")
    answer.headers.add("Set-Cookie", "one=1; Path=/")
    answer.headers.add("Set-Cookie", "two=2; Path=/open")
    return answer


async def _fails(_library: Library, request: web.Request) -> web.StreamResponse:
    status = int(request.match_info["status"])
    return web.json_response({"complaint": f"of {status}"}, status=status)


async def _events(library: Library, request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for number in range(EVENTS):
        await answer.write(b"data: %d\n\n" % number)
        if not await asyncio.to_thread(library.heard.acquire, timeout=5):
            raise HttpProcessingError(message=f"nobody heard of event {number}")
    return answer


async def _never(_library: Library, _request: web.Request) -> web.StreamResponse:
    await waiting.never()
    return web.Response()


async def _endless(_library: Library, request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"more " * 1000)
        await asyncio.sleep(0.01)


async def _echo(_library: Library, request: web.Request) -> web.StreamResponse:
    return web.Response(body=await request.read(), content_type="application/json")


_SHELVES: dict[str, Handler] = {
    "/open/document": _document,
    "/open/document/{number}": _document,
    "/open/great": _great,
    "/open/stream": _stream,
    "/open/packed": _packed,
    "/open/moved/{where}": _moved,
    "/open/cookies": _cookies,
    "/open/fails/{status}": _fails,
    "/open/events": _events,
    "/open/never": _never,
    "/open/endless": _endless,
    "/shut/secret": _document,
}


def _app(library: Library) -> web.Application:
    async def upload(request: web.Request) -> web.StreamResponse:
        body = bytearray()
        async for part in request.content.iter_any():
            body += part
            library.taken.release()
        _note(library, request, bytes(body))
        return web.json_response({"sha256": hashlib.sha256(body).hexdigest()})

    def noted(handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            _note(library, request, await request.read())
            try:
                return await handler(library, request)
            except (asyncio.CancelledError, ConnectionError):
                library.lost += 1
                raise

        return serve

    async def always_alike(_request: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["Date"] = "Thu, 01 Jan 2026 00:00:00 GMT"
        answer.headers["Server"] = "library"

    app = web.Application(client_max_size=1 << 26)
    app.on_response_prepare.append(always_alike)
    for path, handler in _SHELVES.items():
        app.router.add_get(path, noted(handler))
    app.router.add_post("/open/search", noted(_echo))
    app.router.add_post("/shut/search", noted(_echo))
    app.router.add_put("/{shelf}/upload", upload)
    return app


@asynccontextmanager
async def lending(tls: ssl.SSLContext) -> AsyncIterator[Library]:
    library = Library()
    runner = web.AppRunner(
        _app(library), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    for context in (None, tls):
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    library.port, library.tls_port = (each[1] for each in runner.addresses)
    try:
        yield library
    finally:
        await runner.cleanup()
