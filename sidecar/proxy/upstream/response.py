"""One response of the data source: its head has been read, its body is read as it arrives."""

import asyncio
from typing import NamedTuple

import aiohttp
from aiohttp import StreamReader

from sidecar.platform import eager
from sidecar.protocols.messages import ResponseTooLarge
from sidecar.proxy.proxy_metrics import UpstreamBrokeOff
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.connection import UpstreamConnection
from sidecar.proxy.upstream.pool import Pool

_BROKEN = (aiohttp.ClientError, OSError)


class UpstreamHead(NamedTuple):
    """The head of a response. `fields` are those to forward; `length` is the value of
    `Content-Length`, None if the body ends with its last chunk or with the connection. `empty`
    means that no body follows, whatever the head says."""

    status: int
    reason: str
    fields: list[tuple[bytes, bytes]]
    length: bytes | None
    empty: bool


class UpstreamResponse:
    """Must always be finished (`finish`), or its connection leaks."""

    __slots__ = (
        "_body_sender",
        "_connection",
        "_idle_seconds",
        "_pool",
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
        connection: UpstreamConnection,
        body_sender: BodySender | None,
        head: UpstreamHead,
        stream: StreamReader,
        idle_seconds: float,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._pool = pool
        self._connection = connection
        self._body_sender = body_sender
        self.status, self.reason, self.fields, self.length, self.empty = head
        self.stream = stream
        self.retries = 0
        """The number of times that the request was sent again."""

    def read_now(self) -> bytes | None:
        """The whole body if it has arrived already, else None."""
        stream = self.stream
        if stream.is_eof() and stream.exception() is None:
            return stream.read_nowait(-1)
        return None

    async def next(self) -> bytes:
        """The part of the body that has arrived, as soon as there is any; empty at the end. Raises
        `UpstreamBrokeOff` if the body breaks off, or nothing comes for `stream_idle_seconds`."""
        stream = self.stream
        try:
            # Bytes that have already arrived need no timer.
            part = stream.read_nowait(-1)
            if part or stream.at_eof():
                return part
            await eager.within_task()
            async with asyncio.timeout(self._idle_seconds):
                return await stream.readany()
        except TimeoutError as error:
            raise UpstreamBrokeOff(
                f"the data source sent nothing for {self._idle_seconds:g} s"
            ) from error
        except _BROKEN as error:
            raise UpstreamBrokeOff from error

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises `UpstreamBrokeOff`, and `ResponseTooLarge` if it has more than
        `limit` bytes."""
        whole = bytearray()
        while part := await self.next():
            whole += part
            if len(whole) > limit:
                raise ResponseTooLarge(f"the data source's response is larger than {limit} bytes")
        return bytes(whole)

    async def finish(self) -> None:
        """Returns the connection to the pool if both bodies were carried to their end. Otherwise
        breaks it, which tells the data source that the response is no longer wanted."""
        sender = self._body_sender
        # Both bodies: a data source may answer before it has read all of the request.
        if self.stream.at_eof() and (sender is None or sender.done):
            self._pool.release(self._connection)
            return
        self._pool.discard(self._connection)
        if sender is not None:
            await sender.stop()
