"""The agent's end of a connection. TLS begins in the middle of it, once the agent has asked."""

import asyncio
import ssl
from ipaddress import IPv6Address, ip_address
from typing import cast

from sidecar.http.tls_layer import TlsLayer
from sidecar.postgres.connection import BUFFER_BYTES, ConnectionLost, FramedConnection
from sidecar.postgres.frames import Limits, ProtocolFault, from_stranger

STARTUP_BYTES = 10_000
"""The longest startup message, as PostgreSQL has it."""


class AgentConnection(FramedConnection):
    """The agent's end of an accepted connection, as an asyncio protocol: give it to whatever owns
    the transport. `sidecar.postgres.startup` speaks first."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        super().__init__(from_stranger(), buffer_bytes)
        self._raw: asyncio.Transport | None = None
        self._tls: TlsLayer | None = None
        self._handshake: asyncio.Future[None] | None = None
        self._invalid: str | None = None

    def admit(self, limits: Limits) -> None:
        """Let the agent in: what it may send from now on, `limits` say."""
        self._reader.limits = limits

    @property
    def tls(self) -> bool:
        """True if the agent speaks TLS."""
        return self._tls is not None

    @property
    def alpn(self) -> str | None:
        """The protocol that TLS was made for (ALPN); None if the agent named none that is known."""
        if self._tls is None:
            return None
        chosen: str | None = self._tls.get_extra_info("ssl_object").selected_alpn_protocol()
        return chosen

    @property
    def confidential(self) -> bool:
        """True if what the agent sends can't be read on its way: it comes over TLS, or from this
        machine."""
        peer = None if self._raw is None else self._raw.get_extra_info("peername")
        # A Unix socket's address is a text.
        return self.tls or not isinstance(peer, tuple) or _is_loopback(peer[0])

    async def first_byte(self) -> int:
        """Wait for a byte, and return it without taking it. Raises `ConnectionLost`."""
        while (first := self._reader.first()) is None:
            await self._more()
        return first

    async def read_startup(self) -> bytes:
        """Return the payload of the next message of the startup phase. Raises `ConnectionLost` and
        `ProtocolFault`."""
        while (payload := self._reader.take_startup(STARTUP_BYTES)) is None:
            await self._more()
        return payload

    @property
    def pipelined(self) -> bool:
        """True if bytes have arrived that were not read yet."""
        return self._reader.held > 0

    async def start_tls(self, context: ssl.SSLContext, seconds: float) -> None:
        """Serve TLS from here on; what has arrived already is its beginning. The handshake may take
        `seconds`. Raises `ProtocolFault` if it isn't TLS, `ConnectionLost`."""
        self._raw = raw = self._open_transport()
        self._handshake = self._loop.create_future()
        arrived = self._reader.take_all()
        self._make_room()
        self._tls = TlsLayer(context, lambda: _Inside(self), seconds, self._note_invalid)
        self._tls.connection_made(raw)
        if arrived:
            self._tls.data_received(arrived)
        await self._handshake
        if self._invalid is not None:
            raise ProtocolFault(self._invalid)
        if self.lost.done():
            raise ConnectionLost("the connection was lost in the TLS handshake")

    def _note_invalid(self, reason: str) -> None:
        self._invalid = reason

    # ----------------------------------------------------------- asyncio's callbacks, from the wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._raw = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            self._received(data)
        else:
            self._tls.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tls is not None:
            self._tls.connection_lost(exc)
        super().connection_lost(exc)

    def _end(self) -> None:
        super()._end()
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(None)

    # ---------------------------------------------------------- what comes out of the TLS layer

    def decrypted(self, data: bytes) -> None:
        self._received(data)

    def secured(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(None)

    def ended(self) -> None:
        self._end()


class _Inside(asyncio.Protocol):
    """The protocol above the TLS layer."""

    def __init__(self, agent: AgentConnection) -> None:
        self._agent = agent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._agent.secured(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._agent.decrypted(data)

    def eof_received(self) -> bool:
        self._agent.ended()
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        self._agent.ended()


def _is_loopback(text: str) -> bool:
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
