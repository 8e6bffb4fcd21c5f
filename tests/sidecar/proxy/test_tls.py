"""TLS on either side: the data source is always verified, and a port with a certificate speaks
nothing but TLS."""

import asyncio
import hashlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.settings.model import UpstreamTls
from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.proxy import (
    ProxySetup,
    listening,
    policy,
    proxy_setup,
    sidecar,
    source,
)
from tests.support.scripted_source import Flood, Seen, answer, data_source
from tests.support.waiting import until_async

CLOSE = "Connection: close"


@asynccontextmanager
async def upstream_over_tls(
    tmp_path: Path, server: ssl.SSLContext, name: str = "localhost", **tls: Any
) -> AsyncIterator[ProxySetup]:
    async with data_source(answer(), server) as upstream, sidecar(tmp_path) as made:
        configured = source(upstream.port, tls=UpstreamTls(**tls))
        configured = replace(configured, upstream=f"https://{name}:{upstream.port}")
        async with listening(made, configured) as port:
            yield ProxySetup(port, upstream, made)


async def test_a_data_source_is_verified_by_the_configured_authority(tmp_path: Path) -> None:
    ours = authority()
    async with upstream_over_tls(tmp_path, ours.server("localhost"), ca=ours.path) as setup:
        assert (await setup.ask(get("/a"))).body == b"ok"
        assert (await setup.ask(get("/b"))).body == b"ok"
        assert setup.upstream.seen[0].values("host") == [f"localhost:{setup.upstream.port}"]


@pytest.mark.parametrize(
    ("names", "ca"), [("localhost", None), ("localhost", "other"), ("other.test", "authority")]
)
async def test_a_data_source_that_cannot_be_verified_gets_nothing(
    tmp_path: Path, names: str, ca: str | None
) -> None:
    more: dict[str, Any] = {} if ca is None else {"ca": authority(ca).path}
    async with upstream_over_tls(tmp_path, authority().server(names), **more) as setup:
        assert (await setup.ask(get("/a"))).status == 502
        assert setup.upstream.begun == []
        assert [each[0] for each in await setup.sidecar.decisions()] == ["ALLOW"]
        [lineage] = await setup.sidecar.lineage()
        assert lineage["outcome"] == "failed"
        registry = setup.sidecar.enforcer.metrics.registry
        labels = {"kind": "rest", "cause": "unverified"}
        assert registry.get_sample_value("sluice_upstream_failures_total", labels) == 1


async def test_a_data_source_is_verified_by_the_configured_name(tmp_path: Path) -> None:
    ours = authority()
    server = ours.server("other.test")
    async with upstream_over_tls(
        tmp_path, server, "127.0.0.1", ca=ours.path, server_name="other.test"
    ) as setup:
        assert (await setup.ask(get("/a"))).body == b"ok"


async def test_a_client_certificate_is_presented_on_request(tmp_path: Path) -> None:
    ours = authority()
    pair = ours.issue("sidecar.test")
    server = ours.server("localhost", asks=True)
    async with upstream_over_tls(
        tmp_path, server, ca=ours.path, certificate=pair.certificate, key=pair.key
    ) as setup:
        assert (await setup.ask(get("/a"))).body == b"ok"
    async with upstream_over_tls(tmp_path, server, ca=ours.path) as setup:
        assert (await setup.ask(get("/a"))).status == 502
        assert setup.upstream.begun == []


# ------------------------------------------------------------------------------ our own certificate


@dataclass
class OverTls:
    """A listening port that speaks TLS."""

    setup: ProxySetup
    context: ssl.SSLContext

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.setup.port, ssl=self.context, server_hostname="kb.test", limit=1 << 26
        )

    async def ask(self, data: bytes) -> Answered:
        reader, writer = await self.open()
        writer.write(data)
        raw = await reader.read()
        writer.close()
        return Answered(raw)


@asynccontextmanager
async def over_tls(tmp_path: Path, limits: ProxyLimits = LIMITS) -> AsyncIterator[OverTls]:
    closed = policy(denied_sources=("rest://kb/secret",))
    ours = authority()
    pair = ours.issue("kb.test")
    async with proxy_setup(
        tmp_path, closed, limits=limits, listen_tls=pair, writes="allow"
    ) as setup:
        yield OverTls(setup, ours.client())


@pytest.fixture
async def tls(tmp_path: Path) -> AsyncIterator[OverTls]:
    async with over_tls(tmp_path) as made:
        yield made


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_over_tls_are_judged_like_any(tls: OverTls, version: ssl.TLSVersion) -> None:
    tls.context.minimum_version = tls.context.maximum_version = version
    lines = "GET {} HTTP/1.1\r\nHost: kb.test\r\n\r\n"
    data = (lines.format("/a") + lines.format("/secret")).encode() + get("/b", CLOSE)
    answered = await tls.ask(data)
    assert [part[:3] for part in answered.raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"200"]
    assert tls.setup.upstream.targets == ["/a", "/b"]


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["http/1.1", "h2"], "h2"), (["http/1.1"], "http/1.1"), (["h3"], None)]
)
async def test_http_2_is_negotiated_with_a_client_that_offers_it(
    tls: OverTls, offered: list[str], chosen: str | None
) -> None:
    tls.context.set_alpn_protocols(offered)
    _, writer = await tls.open()
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen
    writer.close()


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_segments.py::TestEveryWay::test_a_large_body_arrives"
)
async def test_bodies_pass_whole_in_both_directions(tls: OverTls) -> None:
    body = bytes(range(256)) * 40_000
    sent = hashlib.sha256(body).hexdigest()

    async def echo(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(seen.body))
        writer.write(seen.body)

    tls.setup.upstream.script = echo
    head = (
        f"POST /a HTTP/1.1\r\nHost: kb\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answered = await tls.ask(head.encode() + body)
    assert hashlib.sha256(tls.setup.upstream.seen[0].body).hexdigest() == sent
    assert hashlib.sha256(answered.body).hexdigest() == sent


@pytest.mark.deep(
    stands_in="tests/sidecar/http/test_tls_layer.py::test_the_protocol_above_is_notified_of_a_slow_or_lost_client"
)
async def test_a_slow_reader_holds_the_data_source_back(tls: OverTls) -> None:
    tls.setup.upstream.script = flood = Flood()
    go_on = threading.Event()

    def read() -> int:
        # In a thread: the loops' own clients lose what they hold when a paused connection ends.
        with (
            socket.create_connection(("127.0.0.1", tls.setup.port)) as plain,
            tls.context.wrap_socket(
                plain, server_hostname="kb.test", suppress_ragged_eofs=False
            ) as reader,
        ):
            reader.sendall(get("/a", CLOSE))
            go_on.wait(30)
            size = 0
            while part := reader.recv(1 << 20):
                size += len(part)
            return size

    reading = asyncio.get_running_loop().run_in_executor(None, read)
    await until_async("the source sends", lambda: flood.sent > 0)
    assert await waiting.still(lambda: flood.sent) < 60 << 20
    go_on.set()
    assert await reading > Flood.SIZE


async def test_an_agent_that_ends_its_sending_side_gets_its_answer(tls: OverTls) -> None:
    async def late(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await waiting.turns()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    tls.setup.upstream.script = late
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.context.wrap_bio(incoming, outgoing, server_hostname="kb.test")
    reader, writer = await asyncio.open_connection("127.0.0.1", tls.setup.port)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65536))
    client.write(b"GET /a HTTP/1.1\r\nHost: kb\r\n\r\n")
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    writer.write(outgoing.read())
    plain = b""
    async with asyncio.timeout(20):
        while data := await reader.read(65536):
            incoming.write(data)
            with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                plain += client.read(65536)
    assert plain.endswith(b"\r\n\r\nok")
    writer.close()


async def test_an_agent_that_leaves_ends_its_request(tls: OverTls) -> None:
    async def never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    tls.setup.upstream.script = never
    _, writer = await tls.open()
    writer.write(get("/a"))
    await until_async("the source has the request", lambda: len(tls.setup.upstream.seen) == 1)
    writer.transport.abort()
    await until_async("the source has lost the connection", lambda: tls.setup.upstream.lost == 1)


async def test_a_renewed_certificate_is_presented_from_then_on(tmp_path: Path) -> None:
    ours = authority()
    pair, fresh = ours.issue("kb.test"), ours.issue("new.test")
    async with proxy_setup(tmp_path, listen_tls=pair) as setup:

        async def shown(name: str) -> None:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", setup.port, ssl=ours.client(), server_hostname=name
            )
            writer.close()

        await shown("kb.test")
        # Half of a new pair does not count: the old one stays.
        pair.certificate.write_bytes(fresh.certificate.read_bytes())
        await shown("kb.test")
        pair.key.write_bytes(fresh.key.read_bytes())
        await shown("new.test")
        pair.key.unlink()
        await shown("new.test")


@pytest.mark.parametrize(
    "data",
    [get("/a"), b"\x16\x03\x01\x00\x05hello", bytes(64), b"\x16\x03\x01\x00\x02\x02\x00" * 9],
)
async def test_a_connection_without_tls_is_refused_and_recorded(tls: OverTls, data: bytes) -> None:
    answered = await ask(tls.setup.port, data)
    assert b"HTTP" not in answered.raw
    await until_async("the records are in the spool", lambda: tls.setup.sidecar.spool.depth > 0)
    assert await tls.setup.sidecar.decisions() == [("DENY", "unreadable_request", "rest://kb")]
    assert tls.setup.upstream.begun == []


async def test_old_tls_is_refused(tls: OverTls) -> None:
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        tls.context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        tls.context.maximum_version = ssl.TLSVersion.TLSv1_1
    tls.context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await tls.open()


async def test_an_agent_that_refuses_our_certificate_is_no_denial(tls: OverTls) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection(
            "127.0.0.1", tls.setup.port, ssl=tls.context, server_hostname="other.test"
        )
    await waiting.turns()
    assert await tls.setup.sidecar.decisions() == []


async def test_a_slow_handshake_is_cut_off(tmp_path: Path) -> None:
    # expires on purpose
    async with over_tls(tmp_path, replace(LIMITS, handshake_seconds=0.3)) as made:
        for first in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", made.setup.port)
            writer.write(first)
            async with asyncio.timeout(20):
                with pytest.raises(ConnectionError):
                    raise ConnectionResetError if not await reader.read() else AssertionError
            writer.close()
