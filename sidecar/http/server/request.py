"""Describes one request from a client, what can be done about it on its connection, and what may
become of it: a response that is still to be written, one that must wait for the disk, or one that
has been written. `Service` says who answers the requests of a port, within which limits.

Knows nothing of what a request asks for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from policies.ground.connection_budget import ConnectionBudget
from sidecar.http.messages.request_parser import HTTP_10, HTTP_11, HeadLimits, RequestMessage
from sidecar.http.server.head_cache import HeadCache, KnownHead


class Response(Protocol):
    """A response that is still to be written."""

    @property
    def close(self) -> bool:
        """True if the connection ends after the response."""

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        """Return the whole response, without its body if it answers a HEAD (`omit_body`). It says
        whether the connection stays open: HTTP/1.0 closes connections unless told otherwise."""


Complete = Callable[[BaseException | None], Response]
"""Makes the response once a record is on disk, or of the error that kept it from there."""


class Deferred(NamedTuple):
    """A response that must not be written before `durable` is done: the record of its decision goes
    to disk first. Then `complete` makes it, of the error if the record did not get there. If
    `durable` is cancelled or `complete` raises, the service's `failed` makes the response."""

    durable: asyncio.Future[None]
    complete: Complete


class ResponseSent:
    """A response that has been written, or is being written. `status` is 0 if no response was
    begun."""

    __slots__ = ("keep_alive", "status")

    def __init__(self, *, keep_alive: bool, status: int = 0) -> None:
        self.keep_alive = keep_alive
        self.status = status

    def end_connection(self) -> None:
        """Makes this the last response on its connection."""
        self.keep_alive = False


Answer = Response | Deferred | ResponseSent


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientConnection(Protocol):
    """The parts of a connection that its requests act on, as `HttpRequest` describes them."""

    transport: asyncio.Transport | None
    """None before and after the connection."""
    congested: bool
    heads: HeadCache

    @property
    def ending(self) -> bool:
        """True if the connection closes after the response under way."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def watch(self) -> None: ...
    def stop_reading(self) -> None: ...
    def reset(self) -> None: ...
    def hand_over(self) -> "HandedOver": ...


class HandedOver(NamedTuple):
    """A connection that another protocol runs from now on. `data` followed the request; `ended`
    says that nothing more will arrive. `on_lost` must be called when the connection is lost;
    `nested` makes an HTTP connection inside of this one."""

    transport: asyncio.Transport
    data: bytes
    ended: bool
    on_lost: Callable[[Exception | None], None]
    nested: "ConnectionFactory"


class HttpRequest(RequestMessage):
    """A request as a server answers it.

    The service may keep its reading of the fields in `head`. If the connection knows the head,
    `head` is the service's remembered reading, and there are no fields; `raw_head` then holds the
    bytes. `body_partly_read` says that reading the body for a decision has begun.
    """

    __slots__ = (
        "_connection", "body_partly_read", "continued", "ends_on_client_close", "head", "known",
        "on_left", "raw_head", "response_started",
    )  # fmt: skip

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self._connection = connection
        self.head: Any = None
        self.known = False
        """True if `head` was in the cache of heads."""
        self.raw_head = b""
        """The bytes of the head, if it is known or may be remembered."""
        self.body_partly_read = False
        self.continued = False
        """True if the client was told to send its body."""
        self.response_started = False
        self.ends_on_client_close = False
        self.on_left: list[Callable[[], None]] | None = None
        """Called when the client leaves before it was answered."""

    def remember(self, meaning: Any) -> None:
        """Has the next request with the same head get `meaning`, which must hold no credential."""
        if self.raw_head:
            at = self.raw_head.index(b" %b " % self.target.encode()) + 1
            target = at, at + len(self.target)
            known = KnownHead(self.method, target, self.body.total_bytes, meaning)
            self._connection.heads.add(self.raw_head, known)

    @property
    def http10(self) -> bool:
        return self.version == HTTP_10

    @property
    def local_host(self) -> str | None:
        """The address at which the connection arrived; None if it is gone."""
        transport = self._connection.transport
        name = None if transport is None else transport.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else None

    @property
    def keep_alive(self) -> bool:
        """True if the connection may carry another request after this one."""
        return not (self.should_close or self._connection.ending or self.may_omit_body)

    @property
    def may_omit_body(self) -> bool:
        """True if the client may never send the body that it announced: it sent `Expect:
        100-continue`, was not told to go on, and has sent none of the body. Its next bytes might be
        that body or another request, so a final response ends the connection (RFC 9110 section
        10.1.1)."""
        body = self.body
        if body.complete or body.total_bytes or self.continued or self.version != HTTP_11:
            return False
        return any(name.lower() == b"expect" for name, _ in self.fields)

    def start_response(self, data: bytes) -> None:
        """Writes the first bytes of the response. Raises `ConnectionResetError` if the client is
        gone."""
        self._connection.write(data)
        self.response_started = True

    def write(self, data: bytes) -> None:
        """Writes more of the response. Raises `ConnectionResetError` if the client is gone."""
        self._connection.write(data)

    @property
    def congested(self) -> bool:
        """True while the client reads more slowly than the sidecar writes."""
        return self._connection.congested

    async def drain(self) -> None:
        """Waits until the client has taken enough of what was written."""
        await self._connection.drain()

    def end_on_client_close(self) -> None:
        """Ends the response when the client closes its sending side. For a response without an end,
        such as an event stream: its client can't be waiting for the end."""
        self.ends_on_client_close = True

    def watch_client(self, on_left: Callable[[], None]) -> None:
        """From now on until the response begins, notices soon if the client leaves, and then calls
        `on_left`: for long work that should end then."""
        if self.on_left is None:
            self.on_left = []
        self.on_left.append(on_left)
        self._connection.watch()

    def client_left(self) -> bool:
        """Return whether the client has left. From now on the sidecar watches for that."""
        if self._connection.transport is None:
            return True
        self._connection.watch()
        return False

    def send_continue(self) -> None:
        """Tells a client that sent `Expect: 100-continue` to send its body."""
        # A client that is already sending doesn't need it (RFC 9110 section 10.1.1).
        if not self.body.complete and not self.body.total_bytes:
            self._connection.write(CONTINUE)
            self.continued = True

    def stop_reading(self) -> None:
        """Reads nothing after this request: it may not be HTTP (RFC 9931)."""
        self._connection.stop_reading()

    def hand_over(self) -> HandedOver:
        """Gives the connection away, with the bytes that followed the request. Raises
        `ConnectionResetError` if the client is gone. The request counts as answered when the
        coroutine that serves it returns."""
        return self._connection.hand_over()

    def reset(self) -> None:
        """Breaks the connection, so that the client can't take its end for the end of the body."""
        self._connection.reset()


Serve = Callable[[HttpRequest], Coroutine[Any, Any, Answer]]
"""Answers one request."""

ConnectionFactory = Callable[[Serve], asyncio.Protocol]
"""Makes an HTTP connection inside another connection. The argument answers its requests."""


class ServerLimits(NamedTuple):
    """Bytes and seconds."""

    head: HeadLimits
    buffer_bytes: int
    """The bytes that are read ahead of a slow reader before reading stops."""
    idle_seconds: float
    """The seconds that a connection may wait for a complete request head."""
    lingering_seconds: float
    """The seconds for which the rest of a refused body is read and dropped, so that the client can
    read the refusal."""
    half_close_seconds: float
    """The seconds for which a client that closed its sending side is assumed to wait for the head
    of the response; then it counts as gone. With 0 it counts as gone at once."""
    write_seconds: float
    """The seconds for which a client may take nothing of a response."""
    watch_seconds: float = 0.05
    """The seconds between two checks whether a watched client has left."""


class Flow:
    """Bytes on the connections of one port, framing included."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class Service(NamedTuple):
    """`serve` answers each request; if it raises, `failed` makes the response. With `cancels`, a
    client that leaves cancels its request. `budget` limits the connections of all ports
    together."""

    serve: Serve
    failed: Callable[[HttpRequest], Response]
    limits: ServerLimits
    flow: Flow
    cancels: bool
    heads: HeadCache
    budget: ConnectionBudget
