"""Redirected connections that start with TLS go to the source that the hello names."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from sidecar.proxy.tunnel.client_hello import MOST_RECORDS
from tests.sidecar.proxy.raw_client import get
from tests.sidecar.proxy.tunnel.redirected import (
    ALERT,
    ELSEWHERE,
    NAMED,
    Redirected,
    redirected,
    refusals,
    untouched,
)
from tests.sidecar.proxy.tunnel.test_client_hello import (
    ENCRYPTED,
    hello,
    message,
    records,
    server_name,
)
from tests.support.certificates import authority
from tests.support.proxy import policy


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Redirected]:
    closed = policy(denied_sources=("rest://kb/secret", "rest://seen/secret"))
    async with redirected(tmp_path, closed) as opened:
        yield opened


async def test_tls_is_passed_unread_to_the_named_source_whatever_its_destination(
    made: Redirected,
) -> None:
    made.towards(443)
    reader, writer = await made.over_tls("api.test")
    writer.write(get("/a"))
    assert (await reader.readuntil(b"tls")).startswith(b"HTTP/1.1 200")
    writer.close()
    assert made.tls.targets == ["/a"]
    assert await made.sidecar.decisions() == [("ALLOW", "analysts-read", "rest://api")]
    [lineage] = await made.sidecar.lineage()
    assert lineage["detail"]["bytes"] > 100


async def test_tls_that_ends_here_is_judged_by_request(made: Redirected) -> None:
    made.towards(443)
    reader, writer = await made.over_tls("seen.test")
    writer.write(get("/base/a", host="seen.test") + get("/base/secret", host="seen.test"))
    writer.write(get("/base/a", "Connection: close", host="api.test"))
    raw = await reader.read()
    writer.close()
    assert [each.split(b" ")[0] for each in raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"403"]
    assert made.tls.targets == ["/base/a"]
    assert [each[1:] for each in await made.sidecar.decisions()] == [
        ("analysts-read", "rest://seen/a"),
        ("analysts-read", "rest://seen/secret"),
        ("name_mismatch", "https://api.test:443"),
    ]


@pytest.mark.parametrize(
    ("data", "port", "name", "told"),
    [
        (hello(), 443, "no_server_name", f"https://{ELSEWHERE}:443"),
        (hello(NAMED, (ENCRYPTED, b"")), 443, "encrypted_hello", f"https://{ELSEWHERE}:443"),
        (hello((ENCRYPTED, b"")), 443, "encrypted_hello", f"https://{ELSEWHERE}:443"),
        (hello((0, server_name(b"x.test"))), 443, "unknown_destination", "https://x.test:443"),
        (hello(NAMED), 444, "unknown_destination", "https://api.test:444"),
        (hello((0, server_name(b"kb.test"))), 8000, "unreadable_request", "https://kb.test:8000"),
    ],
)
async def test_tls_to_no_source_gets_an_alert(
    made: Redirected, data: bytes, port: int, name: str, told: str
) -> None:
    made.towards(port)
    assert await made.raw(data) == ALERT
    assert await refusals(made) == [(name, told)]
    assert untouched(made)


@pytest.mark.parametrize(
    "data",
    [
        hello((0, server_name(b"api.test\x00.x"))),
        hello((0, server_name(b"127.0.0.1"))),
        hello(NAMED, NAMED),
        b"\x16\x03\x01\x00\x00",
        records(message(NAMED), *[1] * MOST_RECORDS),
    ],
)
async def test_an_invalid_hello_breaks_the_connection(made: Redirected, data: bytes) -> None:
    made.towards(443)
    assert await made.raw(data) == b"reset"
    assert await refusals(made) == [("unreadable_request", f"tcp://{ELSEWHERE}:443")]
    assert untouched(made)


async def test_a_hello_may_arrive_in_any_pieces(made: Redirected) -> None:
    made.towards(443)
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority().client().wrap_bio(incoming, outgoing, server_hostname="api.test")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    for byte in outgoing.read():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        while tls.version() is None:
            incoming.write(await reader.read(65536))
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
    writer.close()


async def test_the_visible_name_beside_an_allowed_hidden_one_is_judged(
    tmp_path: Path,
) -> None:
    closed = policy(denied_sources=("rest://api",))
    async with redirected(tmp_path, closed, hidden=True) as made:
        made.towards(443)
        assert await made.raw(hello(NAMED, (ENCRYPTED, b""))) == ALERT
        assert await made.sidecar.decisions() == [("DENY", "analysts-read", "rest://api")]
        assert untouched(made)
