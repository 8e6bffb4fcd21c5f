"""CONNECT to a source of the kind `tcp`: decided once, before it is granted. The data source may
speak first, and all bytes pass in both directions."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policies.definitions.model import Policy
from tests.sidecar.proxy.raw_client import Answered, ask, get, leave
from tests.sidecar.proxy.test_forward_proxy import proxying
from tests.sidecar.proxy.tunnel.redirected import greets
from tests.support import waiting
from tests.support.proxy import Sidecar, policy, sidecar, source
from tests.support.waiting import until_async

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Unread:
    """A forward proxy to `pg.test:5432`, which speaks first."""

    port: int
    sidecar: Sidecar

    async def connect(self, behind: bytes = b"", limit: int = 1 << 26) -> Opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=limit)
        writer.write(b"CONNECT pg.test:5432 HTTP/1.1\r\nHost: pg.test:5432\r\n\r\n" + behind)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        return reader, writer


@asynccontextmanager
async def unread(
    tmp_path: Path, *policies: Policy, server: object = greets
) -> AsyncIterator[Unread]:
    pg = await asyncio.start_server(server, "127.0.0.1", 0)  # type: ignore[arg-type]
    where = f"tcp://127.0.0.1:{pg.sockets[0].getsockname()[1]}"
    opaque = source(0, "tcp", alias="pg", listen=None, hosts=("pg.test:5432",))
    async with (
        sidecar(tmp_path, *policies) as made,
        proxying(made, replace(opaque, upstream=where)) as port,
    ):
        yield Unread(port, made)
    pg.close()


async def test_a_data_source_that_speaks_first_is_heard_at_once(
    tmp_path: Path,
) -> None:
    async with unread(tmp_path) as made:
        reader, writer = await made.connect()
        assert await reader.readline() == b"hello\n"
        assert await made.sidecar.decisions() == [("ALLOW", "analysts-read", "tcp://pg")]
        writer.write(b"some words\n")
        assert await reader.readline() == b"SOME WORDS\n"
        # An end on one side is an end there, and no more.
        writer.write_eof()
        assert await reader.read() == b"bye\n"
        writer.close()
        [lineage] = await made.sidecar.lineage()
        whole = b"hello\nSOME WORDS\nbye\n"
        assert lineage["outcome"] == "completed"
        assert lineage["detail"]["bytes"] == len(whole)
        assert lineage["detail"]["sha256"] == hashlib.sha256(whole).hexdigest()


# What looks like TLS or HTTP is what it is: bytes.
@pytest.mark.parametrize("data", [b"\x16\x03\x01\x00\x00\n", b"GET / HTTP/1.1\r\n\r\n", b"\x00\n"])
async def test_data_sent_at_once_arrives_unchanged(tmp_path: Path, data: bytes) -> None:
    async with unread(tmp_path) as made:
        reader, writer = await made.connect(data)
        writer.write_eof()
        assert await reader.read() == b"hello\n" + data.upper() + b"bye\n"
        writer.close()
        assert await made.sidecar.decisions() == [("ALLOW", "analysts-read", "tcp://pg")]


async def test_a_denied_one_is_never_opened(tmp_path: Path) -> None:
    opened = 0

    async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        writer.close()

    async with unread(tmp_path, policy(denied_sources=("tcp://pg",)), server=count) as made:
        connect = b"CONNECT pg.test:5432 HTTP/1.1\r\nHost: pg.test:5432\r\n\r\n"
        answered = await ask(made.port, connect + b"startup")
        assert answered.status == 403
        assert answered.fields["proxy-status"] == "sluice; error=http_request_denied"
        assert await made.sidecar.decisions() == [("DENY", "analysts-read", "tcp://pg")]
    assert opened == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_request_in_absolute_form_is_refused(tmp_path: Path, scheme: str) -> None:
    async with unread(tmp_path) as made:
        answered: Answered = await ask(
            made.port, get(f"{scheme}://pg.test:5432/a", host="pg.test:5432")
        )
        assert answered.json["decision"]["policy_name"] == "unknown_destination"


async def test_a_slow_reader_fills_little_memory(tmp_path: Path) -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(1024):
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536
        writer.close()

    async with unread(tmp_path, server=flood) as made:
        reader, writer = await made.connect(limit=4096)
        assert await waiting.still(lambda: sent) < 60 << 20
        size = 0
        async with asyncio.timeout(60):
            while part := await reader.read(1 << 20):
                size += len(part)
        assert size == 64 << 20
        writer.close()


async def test_a_data_source_notices_that_its_agent_has_left(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(100):
                pass
        except ConnectionError:
            gone.set()
        writer.close()

    async with unread(tmp_path, server=wait) as made:
        _, writer = await made.connect(b"x")
        await until_async("the records are in the spool", lambda: made.sidecar.spool.depth > 0)
        leave(writer)
        async with asyncio.timeout(20):
            await gone.wait()
        [lineage] = await made.sidecar.lineage()
        assert lineage["outcome"] == "truncated"
