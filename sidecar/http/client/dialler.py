"""Opens connections to one server: past its guard, with its TLS settings, and not too many at once.

The guard is asked about every answer of the resolver, and again about every address before a socket
is made for it. `ClientLimits` says what connections to one server may cost. Knows nothing of what
is sent.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import aiohappyeyeballs

from sidecar.http.client.egress_guard import EgressGuard
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.platform.eager import within_task


class ClientLimits(NamedTuple):
    """The limits of the connections to one server, in bytes, in seconds or as counts."""

    head: HeadLimits
    """The limits on the head of a response."""
    buffer_bytes: int
    """The bytes of a body that are read ahead of a slow reader."""
    connections: int
    """The most connections at once; further requests wait for a free connection."""
    connect_seconds: float
    """The seconds that it may take to get a connection, including the wait for a free place,
    resolving and TLS."""
    idle_seconds: float
    """The seconds for which an idle connection is kept for reuse."""
    trailers: bool = False
    """True if the trailers of responses are kept so that they can be forwarded. Otherwise trailers
    are read and dropped."""


# The next address is tried while the one before is still silent (RFC 8305 section 5).
_NEXT_ADDRESS_SECONDS = 0.25
_KEEP_ADDRESSES_SECONDS = 10.0

AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
"""One result of `getaddrinfo`: family, kind, protocol, canonical name, address."""


class DialledProtocol(asyncio.Protocol):
    """Base class of the protocols that run on a `Dialler`'s connections."""

    def abort(self) -> None:
        """Break the connection off."""
        raise NotImplementedError

    async def opened(self) -> Any:
        """Wait until the new connection can be used, and return the protocol that runs it. Raises
        `OSError`."""
        return self


Opened = TypeVar("Opened", bound=DialledProtocol)


class Destination(NamedTuple):
    """A server to connect to. With `context`, the connection uses TLS and the server's certificate
    must be valid for `server_name`; without it, no TLS is spoken."""

    host: str
    port: int
    context: ssl.SSLContext | None = None
    server_name: str | None = None


async def resolve(host: str, port: int) -> list[AddressInfo]:
    """Return the addresses of `host`, by the system's resolver."""
    loop = asyncio.get_running_loop()
    numeric = ":" in host or host.rpartition(".")[2].isdigit()
    flags = socket.AI_NUMERICHOST if numeric else socket.AI_ADDRCONFIG
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)


class Dialler(Generic[Opened]):
    """Opens connections to one server, at most `limits.connections` at once, each run by a protocol
    that `factory` makes, or to which that one gives it. Further requests wait for a free place,
    first come, first served."""

    def __init__(
        self,
        destination: Destination,
        guard: EgressGuard,
        limits: ClientLimits,
        factory: Callable[[], DialledProtocol],
    ) -> None:
        self._destination = destination
        self._guard = guard
        self._limits = limits
        self._factory = factory
        self._waiting: deque[asyncio.Future[Opened | None]] = deque()
        self._resolving = asyncio.Lock()
        self._addresses: list[AddressInfo] = []
        self._addresses_expire = 0.0
        self.connections = 0
        """The number of connections that are open, or being opened."""

    @property
    def full(self) -> bool:
        return self.connections >= self._limits.connections

    async def connect(self) -> Opened:
        """Return a new connection, or one that another request no longer needs. Call `free` when
        the connection is lost. Raises `OSError`: `ssl.SSLError` if the server can't be verified,
        `TimeoutError` after `connect_seconds`."""
        await within_task()
        async with asyncio.timeout(self._limits.connect_seconds):
            freed = await self._take_slot()
            if freed is not None:
                return freed
            try:
                return await self._open()
            except BaseException:
                self.free()
                raise

    def free(self, connection: Opened | None = None) -> None:
        """Free the place of a connection that is lost. With `connection`, an open one that is no
        longer needed: it goes to a request that waits, or is broken off."""
        if not self.pass_on(connection):
            self.connections -= 1
            if connection is not None:
                connection.abort()

    def pass_on(self, connection: Opened | None) -> bool:
        """Give a place to the request that has waited longest: `connection`, or, if that is None,
        the right to open one. Returns False if no request waits."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def _take_slot(self) -> Opened | None:
        # While others wait, it is full: `free` gives a slot to them first.
        if not self.full:
            self.connections += 1
            return None
        waiter: asyncio.Future[Opened | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            # If it was woken and cancelled in the same turn, the next one gets its slot. If it was
            # not woken, it is skipped when a slot is free.
            if not waiter.cancelled():
                self.free(waiter.result())
            raise

    async def _open(self) -> Opened:
        loop = asyncio.get_running_loop()
        sock = await aiohappyeyeballs.start_connection(
            await self._resolved(),
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            socket_factory=self._guard.socket,
        )
        _, _, context, server_name = self._destination
        transport, protocol = await loop.create_connection(
            self._factory,
            sock=sock,
            ssl=context,
            server_hostname=None if context is None else server_name,
        )
        if transport.is_closing():
            raise ConnectionResetError("the connection was lost before it could be used")
        try:
            opened: Opened = await protocol.opened()
        except BaseException:
            transport.abort()
            raise
        return opened

    async def _resolved(self) -> list[AddressInfo]:
        """Return the addresses of the server, the next one to try first. They are kept for a while,
        but not trusted: the guard checks each of them again."""
        loop = asyncio.get_running_loop()
        async with self._resolving:
            if loop.time() >= self._addresses_expire:
                host, port, _, _ = self._destination
                found = await resolve(host, port)
                self._guard.check([each[4][0] for each in found], port)
                self._addresses = found
                self._addresses_expire = loop.time() + _KEEP_ADDRESSES_SECONDS
            # The next connection begins with another one, so that all get their share.
            addresses = self._addresses
            self._addresses = [*addresses[1:], addresses[0]]
            return addresses
