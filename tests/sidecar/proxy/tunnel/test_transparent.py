"""What becomes of a redirected connection, without a packet filter: the test says where it was
going. `test_redirect.py` shows that the kernel is asked."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policies.definitions.model import Policy
from policies.ground.listen_address import ListenAddress
from sidecar.http.authority import Authority
from sidecar.proxy.assembly import TRANSPARENT, Proxy, ProxyPorts
from sidecar.proxy.limits import LIMITS, ProxyLimits
from sidecar.proxy.tunnel.client_hello import MOST_RECORDS
from sidecar.settings.model import UpstreamTls
from tests import waiting
from tests.sidecar.proxy.certificates import authority
from tests.sidecar.proxy.proxy_setup import Sidecar, policy, sidecar, source, until
from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.sidecar.proxy.scripted_source import DataSource, answer, data_source
from tests.sidecar.proxy.tunnel.test_client_hello import (
    ENCRYPTED,
    SERVER_NAME,
    hello,
    message,
    records,
    server_name,
)

ALERT = b"\x15\x03\x03\x00\x02\x02\x31"
ELSEWHERE = "192.0.2.66"
"""An address that no source has; whatever is meant for it goes where the configuration says."""

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Redirected:
    """`kb` speaks plain HTTP on 8000, `api` TLS on 443, of which nothing is read, TLS to `seen`
    ends at the proxy; `pg` is any protocol, on 5432."""

    port: int
    plain: DataSource
    tls: DataSource
    sidecar: Sidecar
    proxy: Proxy
    meant: list[Authority | None]
    pg: asyncio.Server

    def towards(self, port: int, host: str = ELSEWHERE) -> None:
        """Where connections are meant to go from now on."""
        self.meant[:] = [Authority(host, port)]

    async def ask(self, data: bytes) -> Answered:
        return await ask(self.port, data)

    async def raw(self, data: bytes = b"") -> bytes:
        """All that is answered, to the connection's end; the sending side stays open."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            async with asyncio.timeout(20):
                return await reader.read()
        except ConnectionError:
            return b"reset"
        finally:
            writer.close()

    async def over_tls(self, name: str) -> Opened:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=authority().client(), server_hostname=name
        )


async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A data source that speaks first, and then in capitals."""
    writer.write(b"hello\n")
    while line := await reader.readline():
        writer.write(line.upper())
    writer.write(b"bye\n")
    writer.close()


@asynccontextmanager
async def redirected(
    tmp_path: Path, *policies: Policy, limits: ProxyLimits = LIMITS, hidden: bool = False
) -> AsyncIterator[Redirected]:
    ours = authority()
    pg = await asyncio.start_server(greets, "127.0.0.1", 0)
    async with (
        data_source(answer(body=b"plain")) as plain,
        data_source(answer(body=b"tls"), ours.server("api.test", "seen.test")) as tls,
        sidecar(tmp_path, *policies) as made,
    ):
        api = replace(
            source(tls.port, alias="api", listen=None, writes="allow", hosts=("api.test:443",)),
            upstream=f"https://localhost:{tls.port}",
            tls=UpstreamTls(ca=ours.path, server_name="seen.test"),
        )
        seen = replace(api, alias="seen", hosts=("seen.test",), terminate=ours.issue("seen.test"))
        opaque = source(0, "tcp", alias="pg", listen=None, hosts=("pg.test:5432",))
        port = pg.sockets[0].getsockname()[1]
        sources = [
            source(plain.port, listen=None, hosts=("kb.test:8000",)),
            api,
            replace(seen, upstream=f"https://127.0.0.1:{tls.port}/base", writes="deny"),
            replace(opaque, upstream=f"tcp://127.0.0.1:{port}"),
        ]
        meant: list[Authority | None] = [None]
        named = ProxyPorts(None, hidden, ListenAddress("127.0.0.1", 0), lambda _transport: meant[0])
        proxy = made.proxy(sources, limits=limits, named=named)
        await proxy.start()
        try:
            yield Redirected(proxy.port(TRANSPARENT), plain, tls, made, proxy, meant, pg)
        finally:
            await proxy.close(1)
            pg.close()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Redirected]:
    closed = policy(denied_sources=("rest://kb/secret", "rest://seen/secret"))
    async with redirected(tmp_path, closed) as opened:
        yield opened


async def refusals(made: Redirected) -> list[tuple[str, str]]:
    """Policy name and source of what was denied, once it is recorded."""
    found: list[tuple[str, str]] = []

    async def denied() -> bool:
        found[:] = [each[1:] for each in await made.sidecar.decisions() if each[0] == "DENY"]
        return bool(found)

    await waiting.until_told("a denial is recorded", denied)
    return found


def untouched(made: Redirected) -> bool:
    return made.plain.connections == made.tls.connections == 0


# -------------------------------------------------------------------------------------- plain HTTP


async def test_a_request_is_for_the_source_that_its_host_names(made: Redirected) -> None:
    made.towards(8000)
    assert (await made.ask(get("/a?b", host="kb.test:8000"))).body == b"plain"
    assert (await made.ask(get("/a", host="KB.test.:8000"))).body == b"plain"
    assert made.plain.targets == ["/a?b", "/a"]
    assert await made.sidecar.decisions() == [("ALLOW", "analysts-read", "rest://kb/a")] * 2


async def test_each_request_is_judged_by_itself(made: Redirected) -> None:
    made.towards(8000)
    data = get("/a", host="kb.test:8000") + get("/secret", host="kb.test:8000")
    raw = (await made.ask(data + get("/b", host="other.test:8000"))).raw
    assert [each.split(b" ")[0] for each in raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"403", b"403"]
    assert made.plain.targets == ["/a"]
    assert [each[1:] for each in await made.sidecar.decisions()] == [
        ("analysts-read", "rest://kb/a"),
        ("analysts-read", "rest://kb/secret"),
        ("unknown_destination", "http://other.test:8000"),
    ]


@pytest.mark.parametrize(
    ("host", "port", "name", "told"),
    [
        ("other.test:8000", 8000, "unknown_destination", "http://other.test:8000"),
        ("kb.test:8001", 8001, "unknown_destination", "http://kb.test:8001"),
        ("kb.test:8000", 8001, "name_mismatch", "http://kb.test:8000"),
        ("kb.test", 8000, "name_mismatch", "http://kb.test:80"),
        ("127.0.0.1:{plain}", 8000, "name_mismatch", "http://127.0.0.1:{plain}"),
        ("192.0.2.66:8000", 8000, "unknown_destination", "http://192.0.2.66:8000"),
        ("pg.test:5432", 80, "name_mismatch", "http://pg.test:5432"),
    ],
)
async def test_an_unknown_host_at_that_port_is_denied(
    made: Redirected, host: str, port: int, name: str, told: str
) -> None:
    made.towards(port)
    answered = await made.ask(get("/a", host=host.format(plain=made.plain.port)))
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == name
    assert await refusals(made) == [(name, told.format(plain=made.plain.port))]
    assert untouched(made)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: kb.test:8000\r\nHost: kb.test:8000\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nHost: u@kb.test:8000\r\n\r\n", 400),
        (b"GET /../a HTTP/1.1\r\nHost: kb.test:8000\r\n\r\n", 400),
        (b"GET http://kb.test:8000/a HTTP/1.1\r\nHost: kb.test:8000\r\n\r\n", 400),
        (b"CONNECT kb.test:8000 HTTP/1.1\r\nHost: kb.test:8000\r\n\r\n", 400),
        (b"SSH-2.0-OpenSSH_9.6\r\n", 400),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", 400),
        (b"GET /a HTTP/1.0\r\n\r\n", 403),
    ],
)
async def test_what_two_could_read_in_two_ways_is_denied(
    made: Redirected, data: bytes, status: int
) -> None:
    made.towards(8000)
    answered = await made.ask(data)
    assert answered.status == status
    name = "unreadable_request" if status == 400 else "unknown_destination"
    assert await refusals(made) == [(name, f"http://{ELSEWHERE}:8000")]
    assert untouched(made)


# --------------------------------------------------------------------------------------------- TLS


async def test_tls_goes_unread_to_the_source_that_it_names_wherever_it_was_meant_to(
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


NAMED = (SERVER_NAME, server_name(b"api.test"))


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


async def test_a_hello_comes_in_any_pieces(made: Redirected) -> None:
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


async def test_a_hidden_name_may_be_allowed_and_the_one_that_shows_is_judged(
    tmp_path: Path,
) -> None:
    closed = policy(denied_sources=("rest://api",))
    async with redirected(tmp_path, closed, hidden=True) as made:
        made.towards(443)
        assert await made.raw(hello(NAMED, (ENCRYPTED, b""))) == ALERT
        assert await made.sidecar.decisions() == [("DENY", "analysts-read", "rest://api")]
        assert untouched(made)


# ------------------------------------------------------------------------------- whatever it may be


async def test_a_data_source_may_speak_first_where_the_port_is_its(made: Redirected) -> None:
    made.towards(5432)
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    async with asyncio.timeout(20):
        assert await reader.readline() == b"hello\n"
        writer.write(b"abc\n")
        assert await reader.readline() == b"ABC\n"
        # A half-closed agent still hears the rest.
        writer.write_eof()
        assert await reader.read() == b"bye\n"
    writer.close()
    assert await made.sidecar.decisions() == [("ALLOW", "analysts-read", "tcp://pg")]
    [lineage] = await made.sidecar.lineage()
    said = b"hello\nABC\nbye\n"
    assert lineage["outcome"] == "completed"
    assert lineage["detail"]["bytes"] == len(said)
    assert lineage["detail"]["sha256"] == hashlib.sha256(said).hexdigest()
    await until(lambda: made.proxy.agent_connections == 0)


@pytest.mark.parametrize("data", [b"", b"abc\n", hello(NAMED), get("/a", host="kb.test:8000")])
async def test_where_it_is_denied_no_byte_is_answered(tmp_path: Path, data: bytes) -> None:
    async with redirected(tmp_path, policy(denied_sources=("tcp://pg",))) as made:
        made.towards(5432)
        assert await made.raw(data) == b"reset"
        assert await refusals(made) == [("analysts-read", "tcp://pg")]
        assert untouched(made)


async def test_a_data_source_that_is_not_there_breaks_the_connection(made: Redirected) -> None:
    made.towards(5432)
    made.pg.close()
    await made.pg.wait_closed()
    assert await made.raw(b"abc\n") == b"reset"
    [lineage] = await made.sidecar.lineage()
    assert lineage["outcome"] == "failed"


# -------------------------------------------------------------------- destinations without a source


async def test_who_was_not_redirected_means_no_source(made: Redirected) -> None:
    for data in (b"", get("/a", host="kb.test:8000"), hello(NAMED)):
        assert await made.raw(data) == b"reset"
    assert await refusals(made) == [("unknown_destination", "web://127.0.0.1:0")] * 3
    assert untouched(made)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_our_own_ports_are_no_source(made: Redirected, host: str) -> None:
    made.towards(made.port, host)
    assert await made.raw(get("/a", host=f"kb.test:{made.port}")) == b"reset"
    assert await refusals(made) == [("unknown_destination", f"tcp://{host}:{made.port}")]
    assert untouched(made)


async def test_an_agent_that_says_nothing_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with redirected(tmp_path, limits=replace(LIMITS, opening_seconds=0.1)) as made:
        made.towards(443)
        assert await made.raw() == b"reset"
        assert await made.raw(hello(NAMED)[:40]) == b"reset"
        place = f"tcp://{ELSEWHERE}:443"
        assert await refusals(made) == [("unreadable_request", place)] * 2


async def test_an_agent_that_says_nothing_and_goes_has_asked_for_nothing(made: Redirected) -> None:
    made.towards(443)
    _, writer = await asyncio.open_connection("127.0.0.1", made.port)
    await until(lambda: made.proxy.agent_connections == 1)
    writer.close()
    await until(lambda: made.proxy.agent_connections == 0)
    assert await made.sidecar.decisions() == []


async def test_a_stop_waits_for_what_is_under_way_and_ends_the_rest(made: Redirected) -> None:
    made.towards(5432)
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    assert await reader.readline() == b"hello\n"
    made.towards(8000)
    idle, other = await asyncio.open_connection("127.0.0.1", made.port)
    other.write(get("/a", host="kb.test:8000"))
    assert (await idle.readuntil(b"plain")).startswith(b"HTTP/1.1 200")
    await made.proxy.close(0.2)
    for each in (reader, idle):
        with pytest.raises((ConnectionError, AssertionError)):
            assert await each.read()
    writer.close()
    other.close()
    assert [each["outcome"] for each in await made.sidecar.lineage(2)] == ["completed", "truncated"]


# ------------------------------------------------------------------------------- a port of its own


async def test_a_source_of_which_nothing_is_read_may_have_a_port_of_its_own(
    tmp_path: Path,
) -> None:
    pg = await asyncio.start_server(greets, "127.0.0.1", 0)
    opaque = replace(source(0, "tcp"), upstream=f"tcp://127.0.0.1:{pg.sockets[0].getsockname()[1]}")
    async with sidecar(tmp_path) as made:
        proxy = made.proxy([opaque])
        await proxy.start()
        try:
            answered = await ask(proxy.port("kb"), b"a\n")
            assert answered.raw == b"hello\nA\nbye\n"
        finally:
            await proxy.close(1)
            pg.close()
        assert await made.decisions() == [("ALLOW", "analysts-read", "tcp://kb")]
