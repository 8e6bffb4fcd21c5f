"""One answer of the data source: its head is read, its body comes out as it arrives."""

import asyncio

import aiohttp
from aiohttp import StreamReader

from sidecar.protocols.messages import ResponseTooLarge
from sidecar.proxy.proxy_metrics import BrokenOff
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.pool import Pool, UpstreamConnection

_BROKEN = (aiohttp.ClientError, OSError)


class UpstreamResponse:
    """`fields` are what passes of the answer's head; `length` the value of its `Content-Length`,
    None where the end of the body tells; `empty` where no body follows whatever the head says."""

    __slots__ = (
        "_idle_seconds",
        "_pool",
        "_pump",
        "_wire",
        "empty",
        "fields",
        "length",
        "reason",
        "retries",
        "status",
        "stream",
    )

    def __init__(
        self,
        pool: Pool,
        wire: UpstreamConnection,
        pump: BodySender | None,
        status: int,
        reason: str,
        fields: list[tuple[bytes, bytes]],
        length: bytes | None,
        empty: bool,
        stream: StreamReader,
        idle_seconds: float,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._pool = pool
        self._wire = wire
        self._pump = pump
        self.status = status
        self.reason = reason
        self.fields = fields
        self.length = length
        self.empty = empty
        self.stream = stream
        self.retries = 0
        """How often the request was sent again."""

    def at_hand(self) -> bytes | None:
        """The whole body where it came with the head, else None."""
        stream = self.stream
        if stream.is_eof() and stream.exception() is None:
            return stream.read_nowait(-1)
        return None

    async def next(self) -> bytes:
        """What has arrived of the body, as soon as anything has; empty at its end.

        `BrokenOff` where it breaks off, or nothing comes for too long.
        """
        stream = self.stream
        try:
            part = stream.read_nowait(-1)
            if part or stream.at_eof():
                return part
            async with asyncio.timeout(self._idle_seconds):
                return await stream.readany()
        except TimeoutError as error:
            raise BrokenOff("the data source sent nothing for too long") from error
        except _BROKEN as error:
            raise BrokenOff from error

    async def read(self, limit: int) -> bytes:
        """The whole body; `BrokenOff` where it breaks off, `ResponseTooLarge` where it is larger
        than `limit` bytes."""
        whole = bytearray()
        while part := await self.next():
            whole += part
            if len(whole) > limit:
                raise ResponseTooLarge(f"the data source's answer is larger than {limit} bytes")
        return bytes(whole)

    async def finish(self) -> None:
        """Gives the connection back if both bodies were carried to their end; else breaks it, which
        is how the data source learns that nobody listens any more."""
        pump = self._pump
        if self.stream.at_eof() and (pump is None or pump.done):
            self._pool.give_back(self._wire)
            return
        self._pool.discard(self._wire)
        if pump is not None:
            await pump.stop()
