"""Tunnels whose TLS is passed through unread: decided once, before a byte passes."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from policies.definitions.model import TenantSettings
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.raw_client import Answered, ask, get, leave
from tests.sidecar.proxy.test_forward_proxy import proxying
from tests.sidecar.proxy.tunnel.tunnels import ALERT, Tunnels, broken, read, tunnels
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.loop_clock import LoopClock
from tests.support.proxy import policy, sidecar, source
from tests.support.scripted_source import Flood, Seen
from tests.support.waiting import until_async


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Tunnels]:
    closed = policy(denied_sources=("rest://kb/secret", "rest://seen/secret"))
    async with tunnels(tmp_path, closed) as opened:
        yield opened


async def test_tls_to_a_source_is_decided_once_and_passed_on_unread(made: Tunnels) -> None:
    opened = await made.over_tls("api")
    reader, writer = opened
    writer.write(get("/a") + get("/b"))
    for _ in range(2):
        assert (await reader.readuntil(b"tls")).startswith(b"HTTP/1.1 200")
    writer.close()
    assert made.tls.targets == ["/a", "/b"]
    assert made.tls.seen[0].values("host") == ["kb.test"]
    assert await made.sidecar.decisions() == [("ALLOW", "analysts-read", "rest://api")]
    [lineage] = await made.sidecar.lineage()
    assert lineage["outcome"] in ("completed", "truncated")
    assert lineage["detail"]["bytes"] > 200
    assert lineage["detail"]["status"] == 200
    assert lineage["detail"]["sha256"] != hashlib.sha256().hexdigest()


async def test_a_hello_sent_with_the_connect_waits_for_the_decision(made: Tunnels) -> None:
    context = authority().client()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="api.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    head, (reader, writer) = await made.connect(made.where("api"), outgoing.read())
    assert head.startswith(b"HTTP/1.1 200")
    incoming.write(await reader.read(65536))
    client.do_handshake()
    writer.close()


async def test_a_tunnel_to_a_source_without_writes_is_denied(made: Tunnels) -> None:
    head, (reader, writer) = await made.connect(made.where("shut"), get("/behind"))
    answered = Answered(head + await reader.read())
    writer.close()
    assert answered.status == 403
    assert answered.fields["proxy-status"] == "sluice; error=http_request_denied"
    assert answered.json["decision"]["policy_name"] == "write_denied"
    assert await made.sidecar.decisions() == [("DENY", "write_denied", "rest://shut")]
    assert made.tls.connections == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"denied_sources": ("rest://api",)},
        {"allowed_sources": ("rest://api/*",)},
        {"max_sensitivity": "low"},
    ],
)
async def test_a_tunnel_is_judged_as_the_whole_source(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    async with tunnels(tmp_path, policy(**changes)) as made:
        head, (reader, writer) = await made.connect(made.where("api"), get("/behind"))
        answered = Answered(head + await reader.read())
        writer.close()
        assert (answered.status, answered.fields["connection"]) == (403, "close")
        assert answered.raw.count(b"HTTP/1.1") == 1
        assert await made.sidecar.decisions() == [("DENY", "analysts-read", "rest://api")]
        assert made.tls.connections == 0


async def test_an_unreachable_source_is_reported_with_502_before_the_tunnel_opens(
    tmp_path: Path,
) -> None:
    async with sidecar(tmp_path) as alone:
        away = replace(source(1, listen=None, writes="allow"), upstream="https://127.0.0.1:9")
        async with proxying(alone, away) as port:
            connect = b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n"
            answered = await ask(port, connect)
        assert answered.status == 502
        assert answered.fields["proxy-status"] == "sluice; error=destination_unavailable"
        [lineage] = await alone.lineage()
        assert (lineage["outcome"], lineage["detail"]["status"]) == ("failed", 502)


# `proxy/RULES.md`, B20: what the hello names is where the tunnel goes, or nothing passes.
@pytest.mark.parametrize(
    ("name", "policy_name"),
    [
        ("shut.test", "name_mismatch"),
        ("evil.test", "name_mismatch"),
        ("other.test", "name_mismatch"),
        ("127.0.0.1", "no_server_name"),
    ],
)
async def test_a_hello_for_another_server_is_denied(
    made: Tunnels, name: str, policy_name: str
) -> None:
    context = authority().client()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, (_, writer) = await made.connect(made.where("api"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await writer.start_tls(context, server_hostname=name)
    writer.close()
    await until_async("the source's connections are closed", lambda: made.tls.open == 0)
    where = made.where("api")
    assert await made.sidecar.decisions() == [
        ("ALLOW", "analysts-read", "rest://api"),
        ("DENY", policy_name, f"https://{where}"),
    ]
    assert made.tls.begun == []
    [lineage] = await made.sidecar.lineage()
    assert lineage["outcome"] == "failed"


def hidden_hello(name: bytes) -> bytes:
    """A hello that hides another name behind this one."""
    listed = len(name) + 3
    extensions = b"\x00\x00" + (listed + 2).to_bytes(2) + listed.to_bytes(2)
    extensions += b"\x00" + len(name).to_bytes(2) + name + b"\xfe\x0d\x00\x02\x00\x00"
    body = b"\x03\x03" + bytes(32) + b"\x00\x00\x02\x13\x01\x01\x00"
    body += len(extensions).to_bytes(2) + extensions
    return b"\x16\x03\x01" + (len(body) + 4).to_bytes(2) + b"\x01" + len(body).to_bytes(3) + body


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_hidden_server_name_is_denied_unless_set_otherwise(
    tmp_path: Path, hidden: bool
) -> None:
    async with tunnels(tmp_path, hidden=hidden) as made:
        _, (reader, writer) = await made.connect(made.where("api"), hidden_hello(b"api.test"))
        said = await reader.read(65536)
        writer.close()
        names = [each[1] for each in await made.sidecar.decisions()]
        assert names == ["analysts-read"] + ["encrypted_hello"] * (not hidden)
        assert (said == ALERT) is not hidden


async def test_a_hello_may_arrive_byte_by_byte(made: Tunnels) -> None:
    _, (reader, writer) = await made.connect(made.where("api"))
    hello = hidden_hello(b"evil.test")
    for at in range(len(hello)):
        writer.write(hello[at : at + 1])
        await asyncio.sleep(0)
    assert await reader.read() == ALERT
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\x05hello",
        b"\x16garbage in a tunnel",
        b"\x16\x03\x01\x00\x01\x01" + b"\x16\x03\x01\x00\x01\x00" * 16,
    ],
)
async def test_bytes_that_are_not_a_hello_are_denied_and_recorded(
    made: Tunnels, data: bytes
) -> None:
    _, opened = await made.connect(made.where("api"))
    assert (await read(opened, data)).raw == b""
    decisions = await made.sidecar.decisions()
    assert decisions[-1] == ("DENY", "unreadable_request", f"tcp://{made.where('api')}")
    assert made.tls.begun == []


async def test_tls_to_a_source_without_tls_is_denied(made: Tunnels) -> None:
    _, (_, writer) = await made.connect(made.where("kb"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await writer.start_tls(authority().client(), server_hostname="kb.test")
    writer.close()
    where = made.where("kb")
    assert await made.sidecar.decisions() == [("DENY", "unreadable_request", f"https://{where}")]
    assert made.plain.connections == 0


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/tunnel/test_connect_tcp.py::test_a_slow_reader_fills_little_memory"
)
async def test_a_tunnel_holds_no_memory_and_ends_in_good_order(made: Tunnels) -> None:
    made.tls.script = flood = Flood()
    reader, writer = await made.over_tls("api", limit=4096)
    writer.write(get("/a"))
    await reader.readuntil(b"\r\n\r\n")
    assert await waiting.still(lambda: flood.sent) < 60 << 20
    async with asyncio.timeout(60):
        left = Flood.SIZE
        while left:
            left -= len(await reader.readexactly(min(left, 1 << 20)))
    writer.close()
    [lineage] = await made.sidecar.lineage()
    assert lineage["detail"]["bytes"] > Flood.SIZE


async def test_the_side_that_leaves_first_ends_a_tunnel_for_both(made: Tunnels) -> None:
    async def never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    made.tls.script = never
    _, writer = await made.over_tls("api")
    writer.write(get("/a"))
    await until_async("the source has the request", lambda: len(made.tls.seen) == 1)
    leave(writer)
    await until_async("the source has lost the connection", lambda: made.tls.lost == 1)
    [lineage] = await made.sidecar.lineage()
    assert lineage["outcome"] == "truncated"


async def test_an_idle_tunnel_ends(tmp_path: Path, clock: LoopClock) -> None:
    limits = replace(LIMITS, tunnel_idle_seconds=60.0)
    async with tunnels(tmp_path, limits=limits) as made:
        reader, writer = await made.over_tls("api")
        await clock.skip(70)
        await broken(reader)
        writer.close()
        await until_async("the source's connections are closed", lambda: made.tls.open == 0)


async def test_a_tunnel_without_a_first_message_is_closed(tmp_path: Path) -> None:
    limits = replace(LIMITS, opening_seconds=0.2)
    async with tunnels(tmp_path, limits=limits) as made:
        for first in (b"", b"\x16\x03\x01"):
            _, opened = await made.connect(made.where("api"), first)
            assert (await read(opened, b"")).raw == b""
        await until_async("the source's connections are closed", lambda: made.tls.open == 0)
        denied = [each[1] for each in await made.sidecar.decisions() if each[0] == "DENY"]
        assert denied == ["unreadable_request"], "where nothing was sent nothing was asked"


@pytest.mark.parametrize("why", ["key_not_valid", "tenant_frozen"])
async def test_a_tunnel_that_is_no_longer_allowed_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    limits = replace(LIMITS, reauthorize_seconds=0.1)
    async with tunnels(tmp_path, limits=limits) as made:
        reader, writer = await made.over_tls("api")
        writer.write(get("/a"))
        await reader.readuntil(b"tls")
        if why == "tenant_frozen":
            made.sidecar.publish(TenantSettings("ten_1", frozen_at=1))
        else:
            # As after a revocation: the agent's key is not found any more.
            monkeypatch.setattr(type(made.sidecar.agent), "key", lambda _self: None)
        await broken(reader)
        writer.close()
        await until_async("the source's connections are closed", lambda: made.tls.open == 0)
        assert [each[:2] for each in await made.sidecar.decisions()] == [
            ("ALLOW", "analysts-read"), ("DENY", why),
        ]  # fmt: skip
