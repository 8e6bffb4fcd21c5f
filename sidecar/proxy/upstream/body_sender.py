"""Forwards a request body as it arrives. Holds no more than one read at a time: while the data
source takes nothing, nothing is read from the agent."""

import asyncio

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.chunks import LAST_CHUNK, encode_chunk
from sidecar.http.messages.request_parser import BrokenFraming
from sidecar.http.request_body import BodyTooSlow
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.upstream.failures import BROKEN


class BodySender:
    """One body on its way. Runs in a task that the exchange owns, and always stops."""

    __slots__ = ("_chunked", "_connection", "_limits", "_stream", "_task", "broken_off")

    def __init__(
        self,
        stream: BodyStream,
        connection: UpstreamConnection,
        limits: ProxyLimits,
        *,
        chunked: bool,
    ) -> None:
        self._limits = limits
        self._stream = stream
        self._connection = connection
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
        # Raises an error that `_run` doesn't expect: a bug must not pass unnoticed.
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        try:
            while not self.broken_off and (part := await self._next_part()):
                await self._send(encode_chunk(part) if self._chunked else part)
            if self._chunked and not self.broken_off:
                # Only a complete body gets a last chunk: a broken one must not look complete.
                await self._send(LAST_CHUNK)
        except BROKEN:
            # The data source takes no more. The reader of the response finds out whether it has
            # answered.
            self.broken_off = True

    async def _next_part(self) -> bytes:
        stream, seconds = self._stream, self._limits.upload_idle_seconds
        try:
            return await stream.next(seconds)
        except TimeoutError:
            # Kept on the stream, where `forward.py` sees that it was the agent that failed.
            stream.fail(BodyTooSlow(f"nothing of the body arrived for {seconds:g} s"))
            self._break_off(f"the agent sent nothing of its body for {seconds:g} s")
        except (BrokenFraming, ConnectionError):
            self._break_off("the agent broke off its request")
        return b""

    def _break_off(self, why: str) -> None:
        self.broken_off = True
        self._connection.abort(why)

    async def _send(self, data: bytes) -> None:
        self._connection.write(data)
        if self._connection.writing_paused:
            seconds = self._limits.stream_idle_seconds
            try:
                await self._connection.drain(seconds)
            except TimeoutError:
                self._break_off(f"the data source took nothing of the body for {seconds:g} s")
