"""Forwards a request body as it arrives. Holds no more than one read at a time: while the data
source takes nothing, nothing is read from the agent."""

import asyncio

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.chunks import LAST_CHUNK, encode_chunk
from sidecar.http.messages.request_parser import BrokenFraming
from sidecar.http.request_body import BodyTooSlow
from sidecar.http.trailers import BadTrailers, TrailerHead
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.upstream.failures import BROKEN


class BodySender:
    """One body on its way, with its trailers if `trailers` says what its head says of them. Runs in
    a task that the exchange owns, and always stops."""

    __slots__ = (
        "_chunked", "_connection", "_limits", "_stream", "_task", "_trailers", "done",
    )  # fmt: skip

    def __init__(
        self,
        stream: BodyStream,
        connection: UpstreamConnection,
        limits: ProxyLimits,
        *,
        chunked: bool,
        trailers: TrailerHead | None = None,
    ) -> None:
        self._limits = limits
        self._trailers = trailers
        self._stream = stream
        self._connection = connection
        self._chunked = chunked
        self.done = False
        """Whether the whole body was sent."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        # Raises an error that `_run` doesn't expect: a bug must not pass unnoticed.
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        try:
            while part := await self._next_part():
                await self._send(encode_chunk(part) if self._chunked else part)
            if self._chunked:
                # Only a complete body gets a last chunk: a broken one must not look complete.
                await self._send(self._last_chunk())
            self.done = True
        except (BrokenFraming, BadTrailers, *BROKEN) as error:
            # The agent or the data source broke off. The reader of the response finds out whether
            # the data source has answered before.
            self._connection.abort(f"the request's body broke off: {error}")

    def _last_chunk(self) -> bytes:
        if self._trailers is None:
            return LAST_CHUNK
        try:
            return self._trailers.last_chunk(self._stream.trailers)
        except BadTrailers as error:
            # Kept on the stream, as below.
            self._stream.reject(error)
            raise

    async def _next_part(self) -> bytes:
        seconds = self._limits.upload_idle_seconds
        try:
            return await self._stream.next(seconds)
        except TimeoutError:
            # Kept on the stream, where `forward.py` sees that it was the agent that failed.
            self._stream.fail(BodyTooSlow(f"nothing of the body arrived for {seconds:g} s"))
            raise

    async def _send(self, data: bytes) -> None:
        self._connection.write(data)
        if self._connection.writing_paused:
            await self._connection.drain(self._limits.stream_idle_seconds)
