"""A listening port of the sidecar's own, and its connections' settings. Knows no message."""

import asyncio

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from policies.ground.listen_address import ListenAddress
from sidecar.api.connection import ApiService, OwnConnection
from sidecar.http.body_budget import BodyBudget
from sidecar.http.head_cache import HeadCache
from sidecar.http.head_digest import HeadDigest
from sidecar.http.loop_guard import LoopGuard

KEEPALIVE_SECONDS = 60.0
"""How long a connection may be idle, or a head be on its way."""

MAX_LINE = 8190
MAX_HEADERS = 128


class HttpServer(Server):
    """Listens, and answers by `service`."""

    def __init__(
        self,
        listen: ListenAddress,
        service: ApiService,
        own: LoopGuard,
        bodies: BodyBudget,
        digest: HeadDigest,
    ) -> None:
        # A client that hangs up does not take back what was decided: its record is under way.
        super().__init__(_unused, handler_cancellation=False)
        self._listen = listen
        self._service = service
        self._own = own
        self._bodies = bodies
        self._known_heads = HeadCache(digest)
        self._listening: asyncio.Server | None = None

    def __call__(self) -> OwnConnection:
        # aiohttp's own drops every setting, limits included, when it is given one it doesn't know.
        return OwnConnection(
            self,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        ).serve(self._service, self._known_heads, self._bodies)

    async def start(self) -> None:
        """Open the port. Raises `OSError` where it is taken."""
        self._prove_settings()
        self._listening = await self._loop.create_server(
            self, self._listen.host, self._listen.port, backlog=1024
        )
        self._own.add(self._listening.sockets)

    @property
    def address(self) -> ListenAddress:
        """Where it listens, with the port that the system chose for 0."""
        assert self._listening is not None
        host, port = self._listening.sockets[0].getsockname()[:2]
        return ListenAddress(host, port)

    async def close(self, seconds: float) -> None:
        """Accept nothing more, let what is under way finish for `seconds`, then end it."""
        if self._listening is not None:
            self._listening.close()
        self.pre_shutdown()
        await self.shutdown(seconds)

    def _prove_settings(self) -> None:
        """Another aiohttp may take other settings: better not to start than to run without."""
        made = self()
        parser = made._parser
        assert parser is not None
        kept = (made.keepalive_timeout, made.max_line_size, made.max_field_size, made.max_headers)
        [(_, body)], _, _ = parser.feed_data(
            b"POST / HTTP/1.1\r\nHost: self-check\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 5\r\n\r\nplain"
        )
        inflated = body.read_nowait() != b"plain"
        if inflated or kept != (KEEPALIVE_SECONDS, MAX_LINE, MAX_LINE, MAX_HEADERS):
            raise RuntimeError("aiohttp did not take the settings of the server")


async def _unused(_request: BaseRequest) -> StreamResponse:
    """aiohttp wants a handler of its own kind; `OwnConnection` does without."""
    raise RuntimeError("aiohttp's own loop runs in place of ours")
