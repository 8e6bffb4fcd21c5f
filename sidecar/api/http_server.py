"""One of the sidecar's own ports, and the settings of its connections. Knows no message."""

import asyncio

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from policies.ground.listen_address import EVERY, ListenAddress
from sidecar.api.connection import ApiServerConnection, ApiService
from sidecar.http.body_budget import BodyBudget
from sidecar.http.head_cache import HeadCache
from sidecar.http.head_digest import HeadDigest
from sidecar.http.loop_guard import LoopGuard
from sidecar.platform.hosts_to_bind import hosts_to_bind

KEEPALIVE_SECONDS = 60.0
"""The limit on how long a connection stays idle, and on how long a head takes to arrive."""

MAX_LINE = 8190
MAX_HEADERS = 128


class HttpServer(Server):
    """A listening port whose requests `service` answers."""

    def __init__(
        self,
        listen: ListenAddress,
        service: ApiService,
        loop_guard: LoopGuard,
        body_budget: BodyBudget,
        digest: HeadDigest,
    ) -> None:
        # A client that hangs up must not cancel its request: the record of its decision may be on
        # the way to disk.
        super().__init__(_unused, handler_cancellation=False)
        self._listen = listen
        self._service = service
        self._loop_guard = loop_guard
        self._body_budget = body_budget
        self.head_cache = HeadCache(digest)
        self._listening: asyncio.Server | None = None

    def __call__(self) -> ApiServerConnection:
        # aiohttp's own method drops every setting, limits included, if it doesn't recognise one.
        return ApiServerConnection(
            self,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        ).serve(self._service, self.head_cache, self._body_budget)

    async def start(self) -> None:
        """Open the port. Raises `OSError` if it is taken."""
        # On a connection made only for this: without its limits, the port must not open.
        self().verify_settings(
            keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        )
        self._listening = await self._loop.create_server(
            self, hosts_to_bind(self._listen), self._listen.port, backlog=1024
        )
        # From now on no data source may lead back to this port.
        self._loop_guard.add(self._listening.sockets)

    @property
    def address(self) -> ListenAddress:
        """The listening address; for port 0, with the port that the system chose."""
        assert self._listening is not None
        if self._listen.host == EVERY:
            return self._listen
        host, port = self._listening.sockets[0].getsockname()[:2]
        return ListenAddress(host, port)

    async def close(self, seconds: float) -> None:
        """Stop accepting, give open requests `seconds` to finish, then end them."""
        if self._listening is not None:
            self._listening.close()
        # Idle connections end here. The others end after their request, or when the time is up.
        self.pre_shutdown()
        await self.shutdown(seconds)


async def _unused(_request: BaseRequest) -> StreamResponse:
    """aiohttp requires a handler; `ApiServerConnection` never calls it."""
    raise RuntimeError("aiohttp called its own request handler, which the sidecar replaces")
