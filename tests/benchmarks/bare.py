"""The floors that we are held against, each a process of its own under uvloop.

    python -m tests.benchmarks.bare PORT constant SIZE     aiohttp answering SIZE constant bytes
    python -m tests.benchmarks.bare PORT passthrough URL   aiohttp forwarding every request to URL
    python -m tests.benchmarks.bare PORT decision -        aiohttp saying yes to whatever is asked
    python -m tests.benchmarks.bare PORT upstream SIZE     a bare protocol answering SIZE bytes
    python -m tests.benchmarks.bare PORT vectors SIZE      the same as Qdrant answers a search
    python -m tests.benchmarks.bare PORT flood SIZE        the same for any SIZE and any body, no
                                                           faster than it is taken

All but the last three are what most people write: an `Application`, a route, a handler. They read
and check nothing. `GET /health/ready` answers 200.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import cast

import uvloop
from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web


async def _ready(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


def constant(size: int) -> web.Application:
    body = b"{" + b" " * (size - 2) + b"}"

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/health/ready", _ready)
    app.router.add_post("/v1/context/evaluate", answer)
    return app


def decision() -> web.Application:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def passthrough(upstream: str) -> web.Application:
    async def session(app: web.Application) -> AsyncIterator[None]:
        app["session"] = ClientSession(
            connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar(), auto_decompress=False
        )
        yield
        await app["session"].close()

    async def forward(request: web.Request) -> web.StreamResponse:
        async with request.app["session"].request(
            request.method,
            upstream + str(request.rel_url),
            headers=request.headers,
            data=request.content if request.body_exists else None,
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application()
    app.cleanup_ctx.append(session)
    app.router.add_get("/health/ready", _ready)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


class Upstream(asyncio.Protocol):
    """Responds to every request head with the same bytes; requests have no body."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            self._buffer = self._buffer[end + 4 :]
            self._transport.write(self.answer)


class Vectors(asyncio.Protocol):
    """Responds to every request with the same found points, and without aliases to the question
    which there are."""

    answer = b""
    _NO_ALIASES = b'{"result":{"aliases":[]},"status":"ok","time":0.00001}'

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            size = 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._buffer) < end + 4 + size:
                return
            self._buffer = self._buffer[end + 4 + size :]
            aliases = head.startswith(b"get /aliases ")
            self._transport.write(whole(self._NO_ALIASES) if aliases else self.answer)


def whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def points(size: int) -> bytes:
    """A search's answer of about `size` bytes."""
    one = b'{"id":7,"version":3,"score":0.75,"payload":{"text":"%b"},"vector":null}' % (b"x" * 330)
    many = max(1, size // len(one))
    return b'{"result":[%b],"status":"ok","time":0.0004}' % b",".join([one] * many)


class Flood(asyncio.Protocol):
    """Responds to a request without a body with `size` bytes, as fast as the client reads them, and
    to one with a body of known length with two bytes, after reading it."""

    size = 0
    _BLOCK = b"x" * 65536

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._head = b""
        self._body = 0
        self._left = 0
        self._paused = False

    def data_received(self, data: bytes) -> None:
        if not self._body:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[:end].lower(), self._head[end + 4 :]
            self._head = b""
            at = head.find(b"content-length:")
            if at < 0:
                self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.size)
                self._left = self.size
                self._write()
                return
            self._body = int(head[at + 15 :].split(b"\r\n", 1)[0])
        self._body -= len(data)
        if not self._body:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def _write(self) -> None:
        while self._left and not self._paused:
            block = self._BLOCK[: self._left]
            self._left -= len(block)
            self._transport.write(block)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = 0


async def serve_flood(port: int, size: int) -> None:
    Flood.size = size
    server = await asyncio.get_running_loop().create_server(Flood, "127.0.0.1", port)
    await server.serve_forever()


async def serve_vectors(port: int, size: int) -> None:
    Vectors.answer = whole(points(size))
    server = await asyncio.get_running_loop().create_server(Vectors, "127.0.0.1", port)
    await server.serve_forever()


async def serve_upstream(port: int, size: int) -> None:
    Upstream.answer = whole(b"x" * size)
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


async def serve_app(port: int, app: web.Application) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    listen, kind, argument = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    protocols = {"upstream": serve_upstream, "vectors": serve_vectors, "flood": serve_flood}
    if kind in protocols:
        uvloop.run(protocols[kind](listen, int(argument)))
    else:
        match kind:
            case "constant":
                made = constant(int(argument))
            case "decision":
                made = decision()
            case _:
                made = passthrough(argument)
        uvloop.run(serve_app(listen, made))
