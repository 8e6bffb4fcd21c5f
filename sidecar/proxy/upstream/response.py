"""One response of the data source: its head has been read, its body is read as it arrives."""

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.client.pool import Pool
from sidecar.http.messages.response_head import ResponseMessage
from sidecar.protocols.messages import FetchedResponse, ResponseTooLarge
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamBrokeOff
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.failures import BROKEN


class UpstreamResponse:
    """Must always be finished (`finish`), or its connection leaks."""

    __slots__ = ("_body_sender", "_connection", "_limits", "_pool", "message", "retries")

    def __init__(
        self,
        message: ResponseMessage,
        pool: Pool,
        connection: UpstreamConnection,
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
        """The number of times that the request was sent again."""

    async def next(self) -> bytes:
        """The part of the body that has arrived, as soon as there is any; empty at the end. Raises
        `UpstreamBrokeOff` if the body breaks off, or nothing comes for `stream_idle_seconds`."""
        body, seconds = self.message.body, self._limits.stream_idle_seconds
        try:
            # Bytes that have already arrived need no timer.
            return body.take() or await body.next(seconds)
        except TimeoutError as error:
            raise UpstreamBrokeOff(f"the data source sent nothing for {seconds:g} s") from error
        except BROKEN as error:
            raise UpstreamBrokeOff from error

    async def read(self, limit: int) -> FetchedResponse:
        """The whole response. Raises `UpstreamBrokeOff`, and `ResponseTooLarge` if its body has
        more than `limit` bytes."""
        body = bytearray()
        while part := await self.next():
            body += part
            if len(body) > limit:
                raise ResponseTooLarge(f"the data source's response is larger than {limit} bytes")
        message = self.message
        reason = message.reason.decode("utf-8", "surrogateescape")
        return FetchedResponse(message.status, reason, message.fields, bytes(body))

    async def finish(self) -> None:
        """Returns the connection to the pool if both bodies were carried to their end. Otherwise
        breaks it, which tells the data source that the response is no longer wanted."""
        sender = self._body_sender
        # Both bodies: a data source may answer before it has read all of the request.
        if self.message.body.taken and (sender is None or sender.done):
            self._pool.release(self._connection)
            return
        self._pool.discard(self._connection)
        if sender is not None:
            await sender.stop()

    def detach(self) -> BufferedConnection:
        """Makes the connection one end of a tunnel, after a 101. Raises `ConnectionLost`."""
        transport, tail = self._connection.detach()

        def on_lost(_exc: Exception | None) -> None:
            self._pool.forget(self._connection)

        detached = BufferedConnection(self._limits.buffer_bytes, on_lost)
        detached.adopt(transport, tail)
        transport.resume_reading()
        return detached
