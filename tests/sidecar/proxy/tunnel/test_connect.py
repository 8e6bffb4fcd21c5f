"""CONNECT: which tunnels are granted, and the requests that are decided one by one inside them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.other_ways_in import OverTls, Wire
from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.sidecar.proxy.tunnel.tunnels import CLOSE, Opened, Tunnels, broken, read, tunnels
from tests.support import waiting
from tests.support.loop_clock import LoopClock
from tests.support.proxy import policy
from tests.support.scripted_source import Seen


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Tunnels]:
    closed = policy(denied_sources=("rest://kb/secret", "rest://seen/secret"))
    async with tunnels(tmp_path, closed) as opened:
        yield opened


# ---------------------------------------------------------------------------------- judged within


async def test_plain_requests_in_a_tunnel_are_judged_one_by_one(made: Tunnels) -> None:
    _, opened = await made.connect(made.where("kb"))
    where = made.where("kb")
    wanted = get("/a", host=where) + get("/secret", host=where) + get("/b", CLOSE, host=where)
    answered = await read(opened, wanted)
    assert [part[:3] for part in answered.raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"200"]
    assert made.plain.targets == ["/a", "/b"]
    assert [each[::2] for each in await made.sidecar.decisions()] == [
        ("ALLOW", "rest://kb/a"), ("DENY", "rest://kb/secret"), ("ALLOW", "rest://kb/b"),
    ]  # fmt: skip


async def test_requests_within_tls_that_ends_here_are_judged_one_by_one(made: Tunnels) -> None:
    opened = await made.over_tls("seen")
    where = made.where("seen")
    wanted = get("/base/a", host=where) + get("/base/secret", host=where)
    answered = await read(opened, wanted + get("/base/b", CLOSE, host=where))
    assert [part[:3] for part in answered.raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"200"]
    assert made.tls.targets == ["/base/a", "/base/b"]
    assert [each[::2] for each in await made.sidecar.decisions()] == [
        ("ALLOW", "rest://seen/a"), ("DENY", "rest://seen/secret"), ("ALLOW", "rest://seen/b"),
    ]  # fmt: skip


async def test_data_after_the_last_answer_within_tls_causes_no_reset(made: Tunnels) -> None:
    """A reset could take the answer with it (RFC 9112 section 9.6)."""
    where, form = made.where("seen"), OverTls("seen.test")
    wire = Wire(socket.create_connection(("127.0.0.1", made.port)))
    await wire.send(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
    assert (await wire.read_head()).startswith(b"HTTP/1.1 200 ")
    await form.shake(wire)
    await wire.send(form.out(get("/base/secret", CLOSE, host=where)))
    told = b""
    while not form.ended:
        told += form.back(await wire.read())[0]
    assert told.startswith(b"HTTP/1.1 403 ")
    for _ in range(3):
        await wire.send(form.out(bytes(1000)))
        await waiting.turns()
    wire.end()
    assert await wire.read() == b""
    wire.close(reset=False)


@pytest.mark.parametrize(
    ("alias", "host"),
    [
        ("kb", "evil.test"), ("kb", "api.test"), ("kb", "kb.test:99"), ("seen", "api.test:443"),
        ("seen", "shut.test"),
    ],
)  # fmt: skip
async def test_a_host_that_the_tunnel_does_not_lead_to_is_denied(
    made: Tunnels, alias: str, host: str
) -> None:
    opened = await (made.over_tls("seen") if alias == "seen" else _plain(made, alias))
    answered = await read(opened, get("/a", CLOSE, host=host))
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == "name_mismatch"
    assert made.plain.begun == made.tls.begun == []


async def _plain(made: Tunnels, alias: str) -> Opened:
    return (await made.connect(made.where(alias)))[1]


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test\r\n\r\n",
        b"GET http://kb.test/a HTTP/1.1\r\nHost: kb.test\r\n\r\n",
        b"GET /../secret HTTP/1.1\r\nHost: kb.test\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: kb.test\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ],
)
@pytest.mark.parametrize("alias", ["kb", "seen"])
async def test_an_unreadable_request_in_a_tunnel_is_refused_and_ends_it(
    made: Tunnels, alias: str, data: bytes
) -> None:
    where = made.where(alias).encode()
    data = data.replace(b"Host: kb.test\r\n", b"Host: " + where + b"\r\n")
    opened = await (made.over_tls("seen") if alias == "seen" else _plain(made, alias))
    answered = await read(opened, data + get("/behind", host=where.decode()))
    assert answered.status == 400
    assert answered.raw.count(b"HTTP/1.1 ") == 1
    assert [each[1] for each in await made.sidecar.decisions()] == ["unreadable_request"]
    assert made.plain.begun == made.tls.begun == []


async def test_an_agent_that_ends_its_sending_side_at_once_gets_its_answer(
    tmp_path: Path, clock: LoopClock
) -> None:
    # What is asked for comes with the CONNECT, and the end with it.
    go_on = asyncio.Event()

    async def late(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        await go_on.wait()
        writer.write(b"late")

    async with tunnels(tmp_path, limits=replace(LIMITS, half_close_seconds=60.0)) as made:
        made.plain.script = late
        where = made.where("kb")
        connect = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(connect + get("/a", host=where))
        writer.write_eof()
        for _ in ("of the tunnel", "of the answer"):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await clock.skip(70)
        go_on.set()
        assert await reader.read() == b"late"
        writer.close()


async def test_a_tunnel_is_recorded_for_the_named_user_or_the_source_s_default(
    made: Tunnels,
) -> None:
    where = made.where("api")
    for field, user in (("", "ada"), ("X-Sluice-User: eve\r\n", "eve")):
        connect = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{field}\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(connect)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()
        batch = await made.sidecar.spool.batch(1 << 30, 1 << 20)
        assert batch is not None
        assert f'"{user}"'.encode() in b"".join(batch.payloads)


# ------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    "where",
    [
        "evil.test:443",
        "127.0.0.1:22",
        "169.254.169.254:80",
        "[::1]:443",
        "api.test:81",
        "kb.test:22",
    ],
)  # fmt: skip
async def test_a_tunnel_to_an_unknown_destination_is_denied_and_nothing_after_it_read(
    made: Tunnels, where: str
) -> None:
    head, (reader, writer) = await made.connect(where, get("/behind"))
    answered = Answered(head + await reader.read())
    writer.close()
    assert answered.status == 403
    assert answered.fields["proxy-status"] == "sluice; error=http_request_denied"
    assert answered.raw.count(b"HTTP/1.1 ") == 1
    assert answered.fields["connection"] == "close"
    assert await made.sidecar.decisions() == [("DENY", "unknown_destination", f"tcp://{where}")]
    assert made.plain.connections == made.tls.connections == 0


UNREADABLE = [
    b"CONNECT kb.test HTTP/1.1\r\nHost: kb.test\r\n\r\n",
    b"CONNECT /x HTTP/1.1\r\nHost: kb.test\r\n\r\n",
    b"CONNECT kb.test: HTTP/1.1\r\nHost: kb.test\r\n\r\n",
    b"CONNECT kb.test:0 HTTP/1.1\r\nHost: kb.test:0\r\n\r\n",
    b"CONNECT kb.test:007 HTTP/1.1\r\nHost: kb.test:7\r\n\r\n",
    b"CONNECT kb.test:65536 HTTP/1.1\r\nHost: kb.test\r\n\r\n",
    b"CONNECT u@kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n",
    b"CONNECT http://kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n",
    b"CONNECT kb.test:80/x HTTP/1.1\r\nHost: kb.test:80\r\n\r\n",
    b"CONNECT kb.test:80#x HTTP/1.1\r\nHost: kb.test:80\r\n\r\n",
    b"CONNECT 127.1:80 HTTP/1.1\r\nHost: 127.1:80\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: evil.test:80\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:81\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\nHost: kb.test:80\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/2.0\r\nHost: kb.test:80\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\nContent-Length: 5\r\n\r\nhello",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\nUpgrade: websocket\r\n\r\n",
    b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\nX-Sluice-User:\r\n\r\n",
    b"CONNECT k\xc3\xa4.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n",
    b"connect kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n",
]  # fmt: skip


@pytest.mark.parametrize("data", UNREADABLE)
async def test_an_ambiguous_connect_is_refused_and_nothing_after_it_read(
    made: Tunnels, data: bytes
) -> None:
    answered = await ask(made.port, data + get("http://kb.test/behind"))
    assert answered.status == 400, answered.raw[:200]
    assert answered.raw.count(b"HTTP/1.1 ") == 1
    assert answered.fields["connection"] == "close"
    # Where it leads is told as far as it could be read.
    where = "tcp://kb.test:80" if b"X-Sluice" in data else "web://127.0.0.1:0"
    assert await made.sidecar.decisions() == [("DENY", "unreadable_request", where)]
    assert made.plain.begun == made.tls.begun == []


async def test_an_open_tunnel_ends_with_the_port(tmp_path: Path) -> None:
    async with tunnels(tmp_path) as made:
        reader, writer = await made.over_tls("api")
        writer.write(get("/a"))
        await reader.readuntil(b"tls")
    await broken(reader)
    writer.close()
