"""Sockets: listening, what is no HTTP at all, and draining. Knows no route and no key."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from control_api.http.door import rendered
from control_api.http.reply import of_error
from policies.ground.errors import Malformed, SluiceError
from policies.ground.listen import Listen

KEEP_ALIVE_SECONDS = 75.0
BACKLOG = 1024
_log = logging.getLogger("sluice.http")

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class CannotListen(Exception):
    """the address can't be listened on"""


class _Connection(web.RequestHandler):
    """One connection; answers what can't be read as HTTP with our body instead of aiohttp's."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  # aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Called where a request could not be parsed, and where the door itself failed."""
        if status < 500:
            # The fault's text repeats what was sent, a header with a key in it perhaps.
            response = rendered(of_error(Malformed("the request is not HTTP/1.1")), "none")
        else:
            _log.error("a connection failed", exc_info=exc)
            response = rendered(of_error(SluiceError("internal error, request `none`")), "none")
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(
            self,
            loop=self._loop,
            access_log=None,  # type: ignore[arg-type]  # None is none, as aiohttp documents
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=2.0,
        )


class Listener:
    """An address that is listened on, until it drains."""

    def __init__(self, server: _Server, sockets: asyncio.Server) -> None:
        self._server = server
        self._sockets = sockets

    @classmethod
    async def open(cls, address: Listen, setting: str, answer: Answer) -> "Listener":
        """Listen on `address`; `CannotListen`, naming the setting, where that can't be."""
        server = _Server(answer)
        loop = asyncio.get_running_loop()
        try:
            sockets = await loop.create_server(
                server, address.host, address.port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            raise CannotListen(
                f"{setting}: can't listen on `{address}`: {error.strerror or error}"
            ) from error
        return cls(server, sockets)

    @property
    def address(self) -> Listen:
        """Where it listens, the port as the system chose it."""
        host, port = self._sockets.sockets[0].getsockname()[:2]
        return Listen(host, port)

    async def drain(self, seconds: float) -> None:
        """Take no more connections, let the requests under way be answered, close the rest."""
        self._sockets.close()
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)
