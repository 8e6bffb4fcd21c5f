"""Describes one request from a client, and what its service can do with the connection. An answer
is a response that is still to be written (`Response`), one that must wait for the disk
(`Deferred`), or one that has been written (`ResponseSent`). `Service` says who answers the requests
of a port, within which limits.

Knows nothing of what a request asks for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from policies.ground.connection_budget import ConnectionBudget
from sidecar.http.grpc.status import Failure
from sidecar.http.headers import ResponseHead
from sidecar.http.http2.session import MAX_STREAMS
from sidecar.http.messages.chunks import encode_chunk
from sidecar.http.messages.request_parser import HTTP_10, HTTP_11, HeadLimits, RequestMessage
from sidecar.http.server.head_cache import HeadCache, KnownHead


class Response(Protocol):
    """A response that is still to be written."""

    @property
    def close(self) -> bool:
        """True if the connection ends after the response."""

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        """Return the whole response as bytes, without its body if it answers a HEAD (`omit_body`).
        The header `Connection` states `keep_alive`: HTTP/1.0 (`http10`) closes connections unless
        told otherwise."""

    def split(self) -> tuple[ResponseHead, bytes]:
        """Return the head and the body, for a version of HTTP that frames them differently."""

    def failure(self) -> Failure | None:
        """Return the refusal that the response is, as a client of gRPC is told; None if the
        response has no such form."""


class ResponseSent:
    """A response that the service has written itself. `status` is 0 if no response was begun."""

    __slots__ = ("keep_alive", "status")

    def __init__(self, *, keep_alive: bool, status: int = 0) -> None:
        self.keep_alive = keep_alive
        self.status = status

    def end_connection(self) -> None:
        """Make this the last response on its connection."""
        self.keep_alive = False


Complete = Callable[[BaseException | None], Response | ResponseSent]
"""Makes the response once a record is on disk, or writes it. Gets None, or the error because of
which the record could not be written."""


class Deferred(NamedTuple):
    """A response that must not be written before `durable` is done, because the record of its
    decision goes to disk first. Then `complete` makes or writes the response, from the error if the
    record could not be written. If `durable` is cancelled or `complete` raises, the service's
    `failed` does it."""

    durable: asyncio.Future[None]
    complete: Complete


Answer = Response | Deferred | ResponseSent


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_CONTENT = 204
"""A response with this status may not state a length (RFC 9110 section 8.6)."""


class ClientConnection(Protocol):
    """The part of a client's connection that its requests use; the methods do what those of
    `HttpRequest` say."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None before the connection is made and after it is lost."""

    @property
    def congested(self) -> bool:
        """True while the client reads more slowly than the sidecar writes."""

    @property
    def heads(self) -> HeadCache:
        """The heads that the service remembers."""

    @property
    def ending(self) -> bool:
        """True if the connection closes after the current response."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def watch(self) -> None: ...
    def stop_reading(self) -> None: ...
    def reset(self) -> None: ...
    def hand_over(self) -> "HandedOver": ...


class HandedOver(NamedTuple):
    """A connection that another protocol runs from now on. `data` are the bytes that followed the
    request; `ended` says that nothing more will arrive. The new protocol must call `on_lost` when
    the connection is lost; `nested` makes an HTTP connection inside of this one."""

    transport: asyncio.Transport
    data: bytes
    ended: bool
    on_lost: Callable[[Exception | None], None]
    nested: "ConnectionFactory"


class HttpRequest(RequestMessage):
    """A request as a server's service gets it.

    The service may keep in `head` what it has read from the fields. If the head was found in the
    cache (`known`), `head` is what the service remembered for it, and there are no fields;
    `raw_head` then holds the bytes. `body_partly_read` says that reading the body for a decision
    has begun.
    """

    __slots__ = (
        "_chunked", "_connection", "body_partly_read", "continued", "ends_by_close",
        "ends_on_client_close", "head", "kept", "known", "on_left", "raw_head", "response_started",
    )  # fmt: skip

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self._connection = connection
        self.head: Any = None
        self.known = False
        """True if the head was found in the cache, so that `head` is what the service remembered
        for it."""
        self.raw_head = b""
        """The bytes of the head, if it was found in the cache or may be added to it; otherwise
        empty."""
        self.body_partly_read = False
        self.continued = False
        """True if the client was told, by a 100 response, to send its body."""
        self.response_started = False
        self._chunked = self.ends_by_close = self.kept = False
        self.ends_on_client_close = False
        self.on_left: list[Callable[[], None]] | None = None
        """The functions to call if the client leaves before it was answered; None if there are
        none."""

    def remember(self, meaning: Any) -> None:
        """Store `meaning` for this head in the cache: the next request with the same head gets it
        as its `head`. It must hold no credential."""
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
        """The address at which the connection arrived; None if the connection is gone."""
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
        """Write the first bytes of a response. Raises `ConnectionResetError` if the client is gone.
        Other parts call this only for a response that switches protocols; for any other response
        they call `begin` or `respond`."""
        self._connection.write(data)
        self.response_started = True

    def begin(self, head: ResponseHead, *, empty: bool = False, last: bool = False) -> None:
        """Write the head of a response; `send` and `end` write its body, unless it is `empty`,
        whatever length the head states. After the `last` response the connection ends. Raises
        `ConnectionResetError` if the client is gone.

        From now on, `kept` says whether the connection stays open after the response, and
        `ends_by_close` whether its end is the end of the body.
        """
        self.start_response(self._frame(head, empty=empty, last=last))

    async def room(self, count: int) -> None:
        """Wait until a response of `count` bytes may be handed over whole (`respond`), before it is
        read from elsewhere: those of one connection that wait for their client must not fill the
        memory. Raises `ConnectionResetError` if the client is gone."""

    def respond(self, head: ResponseHead, body: bytes, trailers: bytes = b"") -> None:
        """Write a response whose body is at hand, as `begin`, `send` and `end` would."""
        data = self._frame(head)
        if self._chunked:
            body = b"%b0\r\n%b\r\n" % (encode_chunk(body), trailers)
        self.start_response(data + body)

    def send(self, part: bytes) -> None:
        """Write a part of the body. Raises `ConnectionResetError` if the client is gone."""
        self._connection.write(encode_chunk(part) if self._chunked else part)

    def end(self, trailers: bytes = b"") -> None:
        """End the body. Without this, the client knows that a body without a length broke off.
        `trailers` are lines, each with its line end."""
        if self._chunked:
            self._connection.write(b"0\r\n%b\r\n" % trailers)

    def _frame(self, head: ResponseHead, *, empty: bool = False, last: bool = False) -> bytes:
        status, reason, lines, length, own, announced = head
        http10, framing, end = self.http10, b"", b"\r\n"
        self._chunked = self.ends_by_close = False
        if length is not None:
            if status != _NO_CONTENT:
                framing = b"Content-Length: %b\r\n" % length
        elif not empty:
            # HTTP/1.0 has no chunks, so the end of the connection is the end of the body.
            self.ends_by_close, self._chunked = http10, not http10
            if not http10:
                framing = b"Transfer-Encoding: chunked\r\n" + announced
        self.kept = keep_alive = self.keep_alive and not (last or self.ends_by_close)
        if not keep_alive:
            end = b"Connection: close\r\n\r\n"
        elif http10:
            end = b"Connection: keep-alive\r\n\r\n"
        return b"HTTP/1.1 %d %b\r\n%b%b%b%b" % (status, reason, lines, framing, own, end)

    @property
    def congested(self) -> bool:
        """True while the client reads more slowly than the sidecar writes."""
        return self._connection.congested

    async def drain(self) -> None:
        """Wait until the client has accepted enough of the bytes written. Raises
        `ConnectionResetError` if the client is gone, or accepts nothing for `write_seconds`."""
        await self._connection.drain()

    def end_on_client_close(self) -> None:
        """End the response when the client closes its sending side. This is for a response without
        an end, such as an event stream: its client can't be waiting for the end."""
        self.ends_on_client_close = True

    def watch_client(self, on_left: Callable[[], None]) -> None:
        """Call `on_left` when the client leaves. Until the response begins, the sidecar notices
        that soon: this is for long work that should end then."""
        if self.on_left is None:
            self.on_left = []
        self.on_left.append(on_left)
        self._connection.watch()

    def client_left(self) -> bool:
        """Return whether the client has left. Also makes the sidecar watch for that from now on."""
        if self._connection.transport is None:
            return True
        self._connection.watch()
        return False

    def send_continue(self) -> None:
        """Send a 100 response to a client that sent `Expect: 100-continue`, so that it sends its
        body. Nothing is sent if the body is arriving already."""
        # A client that is already sending doesn't need it (RFC 9110 section 10.1.1).
        if not self.body.complete and not self.body.total_bytes:
            self._connection.write(CONTINUE)
            self.continued = True

    def stop_reading(self) -> None:
        """Read nothing after this request: the bytes may not be HTTP (RFC 9931)."""
        self._connection.stop_reading()

    def hand_over(self) -> HandedOver:
        """Give the connection to another protocol, with the bytes that followed the request. Raises
        `ConnectionResetError` if the client is gone. The request counts as answered when the
        coroutine that serves it returns."""
        return self._connection.hand_over()

    def reset(self) -> None:
        """Reset the connection, so that the client can't take its end for the end of the body."""
        self._connection.reset()


Serve = Callable[[HttpRequest], Coroutine[Any, Any, Answer]]
"""Answers one request: a coroutine function."""

ConnectionFactory = Callable[[Serve], asyncio.Protocol]
"""Makes an HTTP connection inside another connection. The argument answers the requests on it."""


class ServerLimits(NamedTuple):
    """The limits of the connections of one port, in bytes or in seconds."""

    head: HeadLimits
    buffer_bytes: int
    """The bytes that are read ahead of a slow reader before reading stops."""
    idle_seconds: float
    """The seconds that a connection may wait for a complete request head."""
    lingering_seconds: float
    """The seconds for which the rest of a refused body is read and dropped, so that the client can
    read the refusal."""
    half_close_seconds: float
    """The seconds that a client that closed its sending side may wait for the head of the response;
    after that it counts as gone. With 0, the client counts as gone at once."""
    write_seconds: float
    """The seconds without progress after which a client that accepts no bytes of a response is cut
    off."""
    watch_seconds: float = 0.05
    """The seconds between two checks whether a client that is watched has left."""
    streams: int = MAX_STREAMS
    """The most requests at once on one connection of HTTP/2."""


class Flow:
    """The numbers of bytes received and sent on the connections of one port, framing included."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class Service(NamedTuple):
    """The service behind one port: `serve` answers each request, and `failed` makes or writes the
    response if `serve` raises. With `cancels`, a client that leaves cancels its request. `budget`
    limits the connections of all ports together. With `any_scheme`, requests of HTTP/2 may state
    `http` above TLS, and `https` without it."""

    serve: Serve
    failed: Callable[[HttpRequest], Response | ResponseSent]
    limits: ServerLimits
    flow: Flow
    cancels: bool
    heads: HeadCache
    budget: ConnectionBudget
    any_scheme: bool = False
