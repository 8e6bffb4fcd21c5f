"""One response of the data source: its head has been read, its body is read as it arrives."""

from sidecar.http.client.connection import UpstreamConnection
from sidecar.http.client.pool import Pool
from sidecar.http.messages.response_parser import ResponseMessage
from sidecar.protocols.messages import ResponseTooLarge
from sidecar.proxy.proxy_metrics import UpstreamBrokeOff
from sidecar.proxy.upstream.body_sender import BodySender
from sidecar.proxy.upstream.failures import BROKEN


class UpstreamResponse:
    """Must always be finished (`finish`), or its connection leaks. `fields` are those to forward;
    `length` is the value of `Content-Length`, None if the body ends with its last chunk or with the
    connection. `empty` means that no body follows, whatever the head says."""

    __slots__ = (
        "_body_sender",
        "_connection",
        "_idle_seconds",
        "_pool",
        "body",
        "empty",
        "fields",
        "length",
        "reason",
        "retries",
        "status",
    )

    def __init__(
        self,
        pool: Pool,
        connection: UpstreamConnection,
        body_sender: BodySender | None,
        message: ResponseMessage,
        idle_seconds: float,
        *,
        to_head: bool,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._pool = pool
        self._connection = connection
        self._body_sender = body_sender
        self.status = message.status
        self.reason = message.reason.decode("utf-8", "surrogateescape")
        self.fields = message.forward
        self.length = message.length
        # Whatever the framing says (RFC 9112 section 6.3).
        self.empty = to_head or message.status in (204, 304)
        self.body = message.body
        self.retries = 0
        """The number of times that the request was sent again."""

    def read_now(self) -> bytes | None:
        """The whole body if it has arrived already, else None."""
        return self.body.take() if self.body.complete else None

    async def next(self) -> bytes:
        """The part of the body that has arrived, as soon as there is any; empty at the end. Raises
        `UpstreamBrokeOff` if the body breaks off, or nothing comes for `stream_idle_seconds`."""
        try:
            # Bytes that have already arrived need no timer.
            return self.body.take() or await self.body.next(self._idle_seconds)
        except TimeoutError as error:
            raise UpstreamBrokeOff(
                f"the data source sent nothing for {self._idle_seconds:g} s"
            ) from error
        except BROKEN as error:
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
        if self.body.taken and (sender is None or sender.done):
            self._pool.release(self._connection)
            return
        self._pool.discard(self._connection)
        if sender is not None:
            await sender.stop()
