"""What becomes of a redirected connection, without a packet filter: the test says where it was
going. `proxy/test_redirect.py` shows that the kernel is asked."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.raw_client import ask, get
from tests.sidecar.proxy.tunnel.redirected import (
    ELSEWHERE,
    NAMED,
    Redirected,
    greets,
    redirected,
    refusals,
    untouched,
)
from tests.sidecar.proxy.tunnel.test_client_hello import (
    hello,
)
from tests.support.proxy import policy, sidecar, source
from tests.support.waiting import until_async


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Redirected]:
    closed = policy(denied_sources=("rest://kb/secret", "rest://seen/secret"))
    async with redirected(tmp_path, closed) as opened:
        yield opened


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
async def test_an_ambiguous_request_is_denied(made: Redirected, data: bytes, status: int) -> None:
    made.towards(8000)
    answered = await made.ask(data)
    assert answered.status == status
    name = "unreadable_request" if status == 400 else "unknown_destination"
    assert await refusals(made) == [(name, f"http://{ELSEWHERE}:8000")]
    assert untouched(made)


# ------------------------------------------------------------------------------- whatever it may be


async def test_a_data_source_may_speak_first_if_the_port_is_its_own(made: Redirected) -> None:
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
    await until_async(
        "the agents' connections are closed", lambda: made.proxy.agent_connections == 0
    )


@pytest.mark.parametrize("data", [b"", b"abc\n", hello(NAMED), get("/a", host="kb.test:8000")])
async def test_a_denied_connection_gets_no_byte(tmp_path: Path, data: bytes) -> None:
    async with redirected(tmp_path, policy(denied_sources=("tcp://pg",))) as made:
        made.towards(5432)
        assert await made.raw(data) == b"reset"
        assert await refusals(made) == [("analysts-read", "tcp://pg")]
        assert untouched(made)


async def test_an_unreachable_data_source_breaks_the_connection(made: Redirected) -> None:
    made.towards(5432)
    made.pg.close()
    await made.pg.wait_closed()
    assert await made.raw(b"abc\n") == b"reset"
    [lineage] = await made.sidecar.lineage()
    assert lineage["outcome"] == "failed"


# -------------------------------------------------------------------- destinations without a source


async def test_a_connection_that_was_not_redirected_has_no_source(made: Redirected) -> None:
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


async def test_a_silent_agent_is_awaited_for_a_limited_time(tmp_path: Path) -> None:
    # expires on purpose
    async with redirected(tmp_path, limits=replace(LIMITS, opening_seconds=0.1)) as made:
        made.towards(443)
        assert await made.raw() == b"reset"
        assert await made.raw(hello(NAMED)[:40]) == b"reset"
        place = f"tcp://{ELSEWHERE}:443"
        assert await refusals(made) == [("unreadable_request", place)] * 2


async def test_a_silent_agent_that_leaves_causes_no_decision(made: Redirected) -> None:
    made.towards(443)
    _, writer = await asyncio.open_connection("127.0.0.1", made.port)
    await until_async("the agent is connected", lambda: made.proxy.agent_connections == 1)
    writer.close()
    await until_async(
        "the agents' connections are closed", lambda: made.proxy.agent_connections == 0
    )
    assert await made.sidecar.decisions() == []


async def test_a_stop_waits_for_open_requests_and_ends_idle_connections(made: Redirected) -> None:
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
