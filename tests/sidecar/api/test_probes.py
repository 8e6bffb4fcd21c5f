"""An agent that holds every connection keeps no probe out, or the kubelet would restart the
sidecar."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sidecar.api.http_server import PROBE_PLACES
from tests.sidecar.proxy.raw_client import Answered, get
from tests.support.certificates import authority
from tests.support.fake_control_api import fake_control_api
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

MOST = 20
PATHS = ("/health", "/health/ready", "/metrics")


class Held:
    """Connections that are held open, and begin what they never finish."""

    def __init__(self, running: RunningSidecar, *, silent: bool) -> None:
        self._address = running.address
        self._data = b"" if silent else b"GET /health"
        self.writers: list[asyncio.StreamWriter] = []
        self.readers: list[asyncio.StreamReader] = []

    async def open(self, count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
            writer.write(self._data)
            self.readers.append(reader)
            self.writers.append(writer)


@asynccontextmanager
async def all_held(tmp_path: Path, **changed: Any) -> AsyncIterator[tuple[RunningSidecar, Held]]:
    """A sidecar all of whose connections an agent holds."""
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, max_connections=MOST, **changed) as running:
            held = Held(running, silent="listen_tls" in changed)
            try:
                await held.open(MOST)
                connections = running.parts.connections
                await until_async("all are held", lambda: connections.open == MOST)
                yield running, held
            finally:
                for writer in held.writers:
                    writer.close()


async def asked(running: RunningSidecar, data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """All that is answered, to the end of the connection."""
    address = running.address
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
    except ConnectionError:
        return b""
    try:
        writer.write(data)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("path", PATHS)
async def test_a_probe_is_answered_when_no_connection_is_left(tmp_path: Path, path: str) -> None:
    async with all_held(tmp_path) as (running, _):
        answered = Answered(await asked(running, get(path, host="127.0.0.1")))
        assert answered.status == 200
        assert answered.fields["connection"] == "close"


async def test_a_probe_in_a_burst_at_the_limit_is_answered(tmp_path: Path) -> None:
    async with all_held(tmp_path) as (running, held):
        held.writers.pop().close()
        connections = running.parts.connections
        await until_async("one place is free", lambda: connections.open == MOST - 1)
        # The event loop finds all of them at once: it has no turn in between.
        address = (running.address.host, running.address.port)
        burst = [socket.create_connection(address) for _ in range(8)]
        for each in burst:
            each.sendall(get("/health", "Connection: close", host="127.0.0.1"))
        streams = [await asyncio.open_connection(sock=each) for each in burst]
        try:
            answered = [Answered(await reader.read()) for reader, _ in streams]
            assert [each.status for each in answered] == [200] * len(burst)
        finally:
            for _, writer in streams:
                writer.close()


async def test_a_probe_over_tls_is_answered_too(tmp_path: Path) -> None:
    ours = authority()
    async with all_held(tmp_path, listen_tls=ours.issue("127.0.0.1")) as (running, held):
        await held.open(3 * PROBE_PLACES)  # none of these shakes hands
        data = get("/health", host="127.0.0.1")
        assert Answered(await asked(running, data, ours.client())).status == 200


async def test_held_connections_do_not_keep_a_probe_out(tmp_path: Path) -> None:
    async with all_held(tmp_path) as (running, held):
        await held.open(3 * PROBE_PLACES)
        for _ in range(3):
            answered = Answered(await asked(running, get("/health", host="127.0.0.1")))
            assert answered.status == 200
        connections = running.parts.connections
        assert connections.open == MOST, "what was there before stays"
        assert connections.refused >= 2 * PROBE_PLACES
        for reader in held.readers[:MOST]:
            assert not reader.at_eof()


async def test_a_request_that_is_no_probe_gets_no_answer(tmp_path: Path) -> None:
    async with all_held(tmp_path) as (running, _):
        assert await asked(running, get("/v1/sources", host="127.0.0.1")) == b""
        behind = get("/health", host="127.0.0.1") + get("/v1/sources", host="127.0.0.1")
        told = await asked(running, behind)
        assert told.count(b"HTTP/1.1 ") == 1, "one answer a connection"
        assert running.parts.connections.refused == 1
