"""A web socket: judged by its handshake like any retrieval, and joined to the data source once that
has said 101. Not a byte behind the request goes there before (Pingora CVE-2026-2833).

What passes afterwards is not read; whether it may go on is asked again every while. Knows
handshakes and connections. Knows nothing of what may be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import aiohttp

from sidecar.http.headers import Fields
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.messages.upgrade import ASKS, answered
from sidecar.proxy.pipeline.tunnel_session import TunnelSession, joined
from sidecar.proxy.proxy_metrics import Unanswered
from sidecar.proxy.upstream.client import UpstreamClient, UpstreamRequest
from sidecar.proxy.upstream.pool import UpstreamConnection
from sidecar.proxy.upstream.response import UpstreamResponse

LONGEST = 16 * 1024
"""The longest head of an answer, in bytes, that may grant one."""

_SWITCHES = b"HTTP/1.1 101"


class WebSocket:
    """One, to the data source of `upstream`. `still` raises `Denied` where it may not go on."""

    def __init__(
        self, upstream: UpstreamClient, limits: ProxyLimits, still: Callable[[], Awaitable[None]]
    ) -> None:
        self._upstream = upstream
        self._limits = limits
        self._still = still

    async def carry(
        self,
        request: AgentRequest,
        ask: UpstreamRequest,
        first: Iterable[Awaitable[None]],
        event: Fields,
        tally: RelayedResponse,
    ) -> UpstreamResponse | None:
        """Lasts as long as the web socket, and returns None; the exchange where the data source
        answered something else. Nothing is granted before all of `first` is done."""
        wire = await self._upstream.connect()
        try:
            head, tail = await self._shaken(wire, ask, first)
            if head is None:
                return await self._upstream.received(wire, ask, ())
            request.begin(answered(head, event))
            tally.status, tally.begun = 101, True
            agent, _ = request.tunnel(self._limits.buffer_bytes)
            source = self._upstream.tunnel(wire, tail)
        except BaseException as error:
            self._upstream.discard(wire)
            if isinstance(error, aiohttp.ClientError):
                raise Unanswered from error
            raise
        await self._joined(agent, source, tally)
        return None

    async def _shaken(
        self, wire: UpstreamConnection, ask: UpstreamRequest, first: Iterable[Awaitable[None]]
    ) -> tuple[bytes | None, bytes]:
        handshake = Handshake(wire)
        wire.expect(body=True)
        wire.write(self._upstream.head(ask._replace(lines=ask.lines + ASKS)))
        for each in first:
            await each
        return await handshake.granted(), handshake.tail

    async def _joined(
        self, agent: BufferedConnection, source: BufferedConnection, tally: RelayedResponse
    ) -> None:
        def done(carried: TunnelSession) -> None:
            tally.carried(carried.outcome, carried.down, carried.sha256)

        await joined(agent, source, self._limits, self._still, done, set())


class Handshake:
    """The answer to a handshake that was sent on `wire`, before the parser sees it."""

    def __init__(self, wire: UpstreamConnection) -> None:
        self._wire = wire
        self._read = b""
        self._head: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.tail = b""
        """What came behind the head."""
        wire.short = self

    async def granted(self) -> bytes | None:
        """The head of the 101; None where the answer is another, which is then the parser's."""
        return await self._head

    def arrived(self, data: bytes) -> bool:
        self._read += data
        begun = self._read[: len(_SWITCHES)]
        if _SWITCHES.startswith(begun) and len(self._read) <= LONGEST:
            end = self._read.find(b"\r\n\r\n") + 4
            if end < 4:
                self._wire.short = self
                return True
            if begun == _SWITCHES:
                # What comes next is no HTTP, and not for the parser.
                if self._wire.transport is not None:
                    self._wire.transport.pause_reading()
                self.tail = self._read[end:]
                self._tell(self._read[:end])
                return True
        whole, self._read = self._read, b""
        self._tell(None)
        self._wire.data_received(whole)
        return True

    def unsure(self) -> None:
        self._tell(None)

    def _tell(self, head: bytes | None) -> None:
        if not self._head.done():
            self._head.set_result(head)
