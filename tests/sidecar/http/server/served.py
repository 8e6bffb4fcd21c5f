"""A connection of the server's over a transport in memory: the test delivers each segment, and sees
what is written, and whether reading and the connection go on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from policies.ground.connection_budget import ConnectionBudget
from sidecar.http.headers import ResponseHead
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.connections import Connections
from sidecar.http.server.head_cache import KEY_BYTES, HeadCache
from sidecar.http.server.request import (
    Answer,
    Flow,
    HttpRequest,
    Response,
    Serve,
    ServerLimits,
    Service,
)
from tests.support import waiting

LIMITS = ServerLimits(
    HeadLimits(1000, 1000, 10),
    buffer_bytes=1000,
    idle_seconds=60.0,
    lingering_seconds=60.0,
    half_close_seconds=60.0,
    write_seconds=60.0,
)


class Reply(NamedTuple):
    """A response of this text."""

    text: bytes
    close: bool = False

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        return b"[%b%b]" % (self.text, b"" if keep_alive else b" close")

    def split(self) -> tuple[ResponseHead, bytes]:
        return ResponseHead(200, b"", b"", b"%d" % len(self.text)), self.text

    def failure(self) -> None:
        return None


def failed(_request: HttpRequest) -> Reply:
    return Reply(b"500", close=True)


class Client(asyncio.Transport):
    """The client of one connection of a service."""

    def __init__(
        self,
        serve: Serve,
        limits: ServerLimits = LIMITS,
        *,
        cancels: bool = True,
        failed: Callable[[HttpRequest], Response] = failed,
        half_closes: bool = False,
        budget: ConnectionBudget | None = None,
    ) -> None:
        super().__init__()
        self.heads = HeadCache(bytes(KEY_BYTES))
        budget = budget or ConnectionBudget(1000)
        service = Service(serve, failed, limits, Flow(), cancels, self.heads, budget)
        self.connections = Connections(service)
        self.got = b""
        """What was written to the client."""
        self.closed = self.aborted = self.reading_paused = self.ended = False
        self._half_closes = half_closes
        self.protocol: Any = self.connections()
        self.protocol.connection_made(self)

    def send(self, *segments: bytes) -> None:
        for segment in segments:
            if not self.closed:
                self.protocol.data_received(segment)

    def end(self) -> None:
        """Ends the sending side."""
        if not self.protocol.eof_received():
            self.close()

    async def settle(self) -> bytes:
        """What was written once nothing more happens by itself."""
        await waiting.turns(20)
        return self.got

    # ------------------------------------------------------------------------------- the transport

    def write(self, data: Any) -> None:
        assert not self.closed
        assert not self.ended
        self.got += bytes(data)

    def can_write_eof(self) -> bool:
        return self._half_closes

    def write_eof(self) -> None:
        assert self._half_closes
        self.ended = True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return not self.reading_paused

    def pause_reading(self) -> None:
        assert not self.reading_paused
        self.reading_paused = True

    def resume_reading(self) -> None:
        assert self.reading_paused
        self.reading_paused = False

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default


class Gate:
    """Answers each request with its target, once a test lets it."""

    def __init__(self) -> None:
        self.served: list[HttpRequest] = []
        self.cancelled: list[str] = []
        self._open: dict[str, asyncio.Event] = {}

    def release(self, *targets: str) -> None:
        for target in targets:
            self._event(target).set()

    def __call__(self, request: HttpRequest) -> Coroutine[Any, Any, Answer]:
        return self._serve(request)

    async def _serve(self, request: HttpRequest) -> Answer:
        self.served.append(request)
        try:
            await self._event(request.target).wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.target)
            raise
        return Reply(request.target.encode())

    @property
    def targets(self) -> list[str]:
        return [each.target for each in self.served]

    def _event(self, target: str) -> asyncio.Event:
        return self._open.setdefault(target, asyncio.Event())


async def at_once(request: HttpRequest) -> Answer:
    """Answers with the target, without waiting."""
    return Reply(b"fault" if request.fault else request.target.encode())


async def with_body(request: HttpRequest) -> Answer:
    """Answers with the whole body."""
    whole = b""
    while part := await request.body.next(60):
        whole += part
    return Reply(whole)


def get(target: str, fields: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (target.encode(), fields)


def post(target: str, size: int, body: bytes = b"", fields: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % size
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%b%b\r\n%b" % (target.encode(), length, fields, body)
