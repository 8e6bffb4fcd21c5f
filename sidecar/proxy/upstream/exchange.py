"""Forwards a request's body as it arrives, and reads a response's body as it arrives.

Holds no more than one read of a request at a time: while the data source accepts no bytes, nothing
is read from the agent.
"""

import asyncio

from policies.ground.errors import Unavailable
from sidecar.http.client.pool import Carrier, Pool
from sidecar.http.messages.body import BodyReader
from sidecar.http.messages.chunks import BadTrailers, TrailerHead
from sidecar.http.messages.request_parser import BrokenFraming
from sidecar.http.messages.response_parser import BadResponse, ResponseMessage
from sidecar.http.request_body import BodyTooSlow
from sidecar.protocols.protocol import FetchedResponse, ResponseTooLarge
from sidecar.proxy.connections import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamBrokeOff

BROKEN = (BadResponse, OSError)


class BodySender:
    """Sends one request body to the data source as it arrives, and its trailers if `trailers` is
    given (the fields of the head about them). Runs in a task that the exchange owns, and always
    stops."""

    __slots__ = (
        "_connection", "_limits", "_stream", "_task", "_trailers", "done",
    )  # fmt: skip

    def __init__(
        self,
        stream: BodyReader,
        connection: Carrier,
        limits: ProxyLimits,
        trailers: TrailerHead | None = None,
    ) -> None:
        self._limits = limits
        self._trailers = trailers
        self._stream = stream
        self._connection = connection
        self.done = False
        """True if the whole body was sent."""
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
                self._connection.send_part(part)
                await self._drain()
            # Only a complete body gets an end: a broken one must not look complete.
            self._connection.finish_body(self._trailer_lines())
            await self._drain()
            self.done = True
        except (BrokenFraming, BadTrailers, Unavailable, *BROKEN) as error:
            # The agent or the data source broke off, or there is no room for the body. The reader
            # of the response finds out whether the data source has answered before.
            self._connection.abort(f"the request's body broke off: {error}")

    def _trailer_lines(self) -> bytes:
        if self._trailers is None:
            return b""
        try:
            return self._trailers.lines(self._stream.trailers)
        except BadTrailers as error:
            # Kept on the stream, as below.
            self._stream.reject(error)
            raise

    async def _next_part(self) -> bytes:
        seconds = self._limits.upload_idle_seconds
        try:
            return await self._stream.next(seconds)
        except TimeoutError:
            # Kept on the stream, where `pipeline/forward.py` sees that the agent failed.
            self._stream.fail(BodyTooSlow(f"nothing of the body arrived for {seconds:g} s"))
            raise

    async def _drain(self) -> None:
        if self._connection.writing_paused:
            await self._connection.drain(self._limits.stream_idle_seconds)


class UpstreamResponse:
    """A response of the data source. It must always be finished (`finish`), or its connection
    leaks."""

    __slots__ = ("_body_sender", "_connection", "_limits", "_pool", "message", "retries")

    def __init__(
        self,
        message: ResponseMessage,
        pool: Pool,
        connection: Carrier,
        body_sender: BodySender | None,
        limits: ProxyLimits,
        retries: int = 0,
    ) -> None:
        self.message = message
        self._pool = pool
        self._connection = connection
        self._body_sender = body_sender
        self._limits = limits
        self.retries = retries
        """The number of times that the request was sent again before this response."""

    async def next(self) -> bytes:
        """Return the next bytes of the body, as soon as there are any; empty at the end. Raises
        `UpstreamBrokeOff` if the body breaks off, or if nothing arrives for
        `stream_idle_seconds`."""
        body, seconds = self.message.body, self._limits.stream_idle_seconds
        try:
            # Bytes that have already arrived need no timer.
            return body.take() or await body.next(seconds)
        except TimeoutError as error:
            raise UpstreamBrokeOff(f"the data source sent nothing for {seconds:g} s") from error
        except BROKEN as error:
            raise UpstreamBrokeOff from error

    async def read(self, limit: int) -> FetchedResponse:
        """Return the whole response. Raises `UpstreamBrokeOff`, and `ResponseTooLarge` if its body
        has more than `limit` bytes."""
        body = bytearray()
        while part := await self.next():
            body += part
            if len(body) > limit:
                raise ResponseTooLarge(f"the data source's response is larger than {limit} bytes")
        message = self.message
        reason = message.reason.decode("utf-8", "surrogateescape")
        trailers = self.trailers()
        return FetchedResponse(message.status, reason, message.fields, bytes(body), trailers)

    def trailers(self) -> bytes:
        """Return the trailer fields to forward, each with its line end, once the body has been
        read."""
        message = self.message
        trailers = message.body.trailers
        return b"" if trailers is None else message.trailer_head.lines(trailers)

    async def finish(self) -> None:
        """Return the connection to the pool if the bodies of both the request and the response were
        carried to their end. Otherwise break it off, which tells the data source that the response
        is no longer wanted."""
        sender = self._body_sender
        # Both bodies: a data source may answer before it has read all of the request.
        if self.message.body.taken and (sender is None or sender.done):
            self._pool.release(self._connection)
            return
        self._pool.discard(self._connection)
        if sender is not None:
            await sender.stop()

    def detach(self) -> BufferedConnection:
        """Take the connection out of the pool after a 101, and return it as one end of a tunnel.
        Raises `ConnectionLost`."""
        transport, tail = self._connection.detach()

        def on_lost(_exc: Exception | None) -> None:
            self._pool.forget(self._connection)

        detached = BufferedConnection(self._limits.buffer_bytes, on_lost)
        detached.adopt(transport, tail)
        transport.resume_reading()
        return detached
