"""Sockets: listening, what is no HTTP at all, and draining. Knows no route and no key."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from aiohttp import web

from control_api.http.door import rendered
from control_api.http.reply import of_error
from policies.ground.errors import Malformed, SluiceError
from policies.ground.listen import Listen

KEEP_ALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
"""How long what is left of a refused body is read, so that the caller reads the refusal."""
BACKLOG = 1024
_log = logging.getLogger("sluice.http")


class Answers(Protocol):
    """What a listener's requests are given to."""

    new_request_id: Callable[[], str]

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse: ...


class CannotListen(Exception):
    """the address can't be listened on"""


class _Connection(web.RequestHandler):
    """One connection; answers what can't be read as HTTP with our body instead of aiohttp's."""

    __slots__ = ("_new_request_id",)

    def __init__(self, server: "_Server", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # None is none, as aiohttp documents
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
        )
        self._new_request_id = server.new_request_id

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  # aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """Called where a request could not be parsed, and where the door itself failed."""
        request_id = self._new_request_id()
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            # The fault's text repeats what was sent, a header with a key in it perhaps.
            reply = of_error(Malformed("the request is not HTTP/1.1"))
        else:
            _log.error("request `%s` failed outside the door", request_id, exc_info=exc)
            reply = of_error(SluiceError(f"internal error, request `{request_id}`"))
        response = rendered(reply, request_id)
        response.force_close()
        return response


class _Server(web.Server):
    def __init__(self, answers: Answers) -> None:
        super().__init__(answers)
        self.new_request_id = answers.new_request_id

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._loop)


class Listener:
    """An address that is listened on, until it drains."""

    def __init__(self, server: _Server, sockets: asyncio.Server) -> None:
        self._server = server
        self._sockets = sockets

    @classmethod
    async def open(cls, address: Listen, setting: str, answers: Answers) -> "Listener":
        """Listen on `address`; `CannotListen`, naming the setting, where that can't be."""
        server = _Server(answers)
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
