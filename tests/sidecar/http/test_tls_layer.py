"""TLS that the sidecar ends itself, between a connection and a protocol, without a socket."""

import asyncio
import ssl
from typing import Any

import pytest

from sidecar.http.tls_layer import TlsLayer
from tests.support.certificates import authority


class Below(asyncio.Transport):
    """A connection from a client: `written` is what it would get."""

    written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False


class Above(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def pause_writing(self) -> None:
        self.told.append("slow")

    def resume_writing(self) -> None:
        self.told.append("takes more")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")


class Spoken:
    """A layer whose handshake is done, and its client."""

    def __init__(self) -> None:
        self.above, self.below = Above(), Below()
        self.layer = TlsLayer(authority().server("kb.test"), lambda: self.above, 30, pytest.fail)
        self.layer.connection_made(self.below)
        self._to_client, self._to_layer = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = (
            authority()
            .client()
            .wrap_bio(self._to_client, self._to_layer, server_hostname="kb.test")
        )
        while not self._shaken():
            self.layer.data_received(self._to_layer.read())
            self.arrive()
        self.layer.data_received(self._to_layer.read())
        self.arrive()

    def _shaken(self) -> bool:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def arrive(self) -> None:
        """What the layer has written reaches the client."""
        self._to_client.write(self.below.written)
        self.below.written = b""


async def test_written_data_of_any_length_arrives() -> None:
    spoken, whole = Spoken(), bytes(range(256)) * 300
    spoken.above.transport.write(whole)
    spoken.arrive()
    received = b""
    while len(received) < len(whole):
        received += spoken.client.read(len(whole))
    assert received == whole


async def test_the_protocol_above_is_notified_of_a_slow_or_lost_client() -> None:
    spoken = Spoken()
    assert spoken.above.told == []
    spoken.layer.pause_writing()
    spoken.layer.resume_writing()
    spoken.layer.connection_lost(None)
    assert spoken.above.told == ["slow", "takes more", "lost"]
