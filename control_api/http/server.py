"""Sockets: listening, what is no HTTP at all, and draining. Knows no route and no key."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from aiohttp import web

from control_api.http.reply import of_error
from control_api.http.request_pipeline import rendered
from control_api.security.tls_files import HANDSHAKE_SECONDS
from control_api.sockets import BACKLOG, bind
from policies.ground.errors import Malformed, SluiceError
from policies.ground.listen_address import ListenAddress

KEEP_ALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
"""How long what is left of a refused body is read, so that the caller reads the refusal."""
LAST_SECONDS = 0.1
"""How long a connection that stands already may bring another request while the service stops."""
_log = logging.getLogger("sluice.http")


class RequestHandler(Protocol):
    """What a listener's requests are given to."""

    new_request_id: Callable[[], str]

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse: ...


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
    def __init__(self, answers: RequestHandler) -> None:
        super().__init__(self._answer)
        self.new_request_id = answers.new_request_id
        self.draining = False
        self._answers = answers

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._loop)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._answers(request)
        if self.draining:
            response.force_close()
        return response


class ApiListener:
    """An address that is listened on, until it drains."""

    def __init__(
        self,
        server: _Server,
        sockets: list[socket.socket],
        accepting: list[asyncio.Server],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.address = ListenAddress(*sockets[0].getsockname()[:2])
        """Where it listens, the port as the system chose it."""
        self._server = server
        self._sockets = sockets
        self._accepting = accepting
        self._tls = tls

    @classmethod
    async def open(
        cls,
        address: ListenAddress,
        setting: str,
        answers: RequestHandler,
        given: list[socket.socket],
        tls: ssl.SSLContext | None = None,
    ) -> "ApiListener":
        """Listen on the sockets that are given, or else on `address`; `CannotListen`, naming the
        setting, where that can't be. With `tls` nothing but TLS is spoken."""
        server = _Server(answers)
        sockets = given or bind(address, setting)[0]
        loop = asyncio.get_running_loop()
        # A copy of each: what came in before the server closed its own is accepted by way of ours.
        accepting = [
            await loop.create_server(
                server,
                sock=each.dup(),
                backlog=BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )
            for each in sockets
        ]
        return cls(server, sockets, accepting, tls)

    async def drain(self, seconds: float) -> None:
        """Take no more connections, let the requests under way be answered, close the rest. A
        connection that stands already is answered once more, and told that it is the last time."""
        self._server.draining = True
        for each in self._accepting:
            each.close()
        waiting = self._accept_rest()
        # Together: one that does not shake hands must not hold up the rest. What fails in a
        # handshake has asked for nothing yet.
        await asyncio.gather(*map(self._take, waiting), return_exceptions=True)
        await asyncio.sleep(LAST_SECONDS)
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)

    def _accept_rest(self) -> list[socket.socket]:
        """What waits for us, and the ports are closed. The loop gets no turn in between: what comes
        after the last look and before the closing is broken off."""
        waiting: list[socket.socket] = []
        for sock in self._sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting.append(sock.accept()[0])
            sock.close()
        return waiting

    async def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(
            self._server,
            connection,
            ssl=self._tls,
            ssl_handshake_timeout=LINGER_SECONDS if self._tls else None,
        )
