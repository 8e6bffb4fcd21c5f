"""Sends a request's body on while it arrives. Holds what one read gave, and no more: while the data
source takes nothing, nothing is read from the client."""

import asyncio

import aiohttp
from aiohttp import StreamReader
from aiohttp.web_protocol import PayloadAccessError, RequestPayloadError

from sidecar.http.request_body import BodyTooSlow
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.upstream.pool import UpstreamConnection

_CLIENT_BROKE_OFF = (RequestPayloadError, PayloadAccessError, ConnectionError)


class BodySender:
    """One body on its way. Its task belongs to the exchange that made it, which always stops it."""

    __slots__ = ("_chunked", "_limits", "_stream", "_task", "_wire", "broken_off")

    def __init__(
        self, stream: StreamReader, wire: UpstreamConnection, limits: ProxyLimits, *, chunked: bool
    ) -> None:
        self._limits = limits
        self._stream = stream
        self._wire = wire
        self._chunked = chunked
        self.broken_off = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def done(self) -> bool:
        """Whether the whole body was sent."""
        return self._task.done() and not self._task.cancelled() and not self.broken_off

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        try:
            while not self.broken_off and (part := await self._part()):
                await self._send(b"%x\r\n%b\r\n" % (len(part), part) if self._chunked else part)
            if self._chunked and not self.broken_off:
                # Only a body that ended gets its end: a broken one must not look whole.
                await self._send(b"0\r\n\r\n")
        except (aiohttp.ClientError, OSError):
            # The data source takes no more. What it answered, or that it did not, is the reading
            # side's to tell.
            self.broken_off = True

    async def _part(self) -> bytes:
        stream, seconds = self._stream, self._limits.upload_idle_seconds
        try:
            part = stream.read_nowait(-1)
            if part or stream.at_eof():
                return part
            async with asyncio.timeout(seconds):
                return await stream.readany()
        except TimeoutError:
            stream.set_exception(BodyTooSlow(f"nothing of the body arrived for {seconds:g} s"))
            self._break("the agent sent nothing for too long")
        except _CLIENT_BROKE_OFF:
            self._break("the agent broke off its request")
        return b""

    def _break(self, why: str) -> None:
        self.broken_off = True
        # In this order: aiohttp's `abort` forgets what was set before it.
        self._wire.abort()
        self._wire.set_exception(aiohttp.ClientConnectionResetError(why))

    async def _send(self, data: bytes) -> None:
        self._wire.write(data)
        if self._wire.writing_paused:
            try:
                async with asyncio.timeout(self._limits.stream_idle_seconds):
                    await self._wire._drain_helper()
            except TimeoutError:
                self._break("the data source takes nothing of the body")
