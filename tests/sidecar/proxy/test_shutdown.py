"""The proxy stops, whatever its connections are doing: within its time, with nothing left, nothing
answered without its record, and the outcome of what it had allowed in the log."""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from tests.sidecar.proxy.every_port import PORTS, EveryPort, every_port
from tests.sidecar.proxy.raw_client import get
from tests.sidecar.proxy.test_durability import held
from tests.sidecar.proxy.test_odd_connections import SOCKET, TUNNEL
from tests.support import waiting
from tests.support.scripted_source import Seen, answer

LONG = 3600.0
"""A time to finish that no test waits for."""
SHORT = 0.2

TCP = b"CONNECT tcp.test:5432 HTTP/1.1\r\nHost: tcp.test:5432\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: kb.test\r\nContent-Length: 100\r\n\r\n"
JUDGED = b"POST /ask/a HTTP/1.1\r\nHost: kb.test\r\nContent-Length: 100\r\n\r\n"
REFUSED = b"POST /secret HTTP/1.1\r\nHost: kb.test\r\nContent-Length: 100\r\n\r\n"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@dataclass(frozen=True)
class State:
    """A connection to `port` that has sent `sent`, once what came back contains `until`, and as
    many requests are at the data source. `busy`: a stop waits for it."""

    port: str
    sent: bytes
    until: bytes = b""
    at_source: int = 0
    busy: bool = True
    outcome: str = "truncated"
    """How what it was allowed ends."""
    silent: bool = False
    """Whether the data source answers nothing."""


STATES = {
    "new": State("kb", b"", busy=False),
    "idle": State("kb", get("/a"), b"]}}", 1, busy=False, outcome="completed"),
    "in a head": State("kb", b"GET /a HT", busy=False),
    "in the head of a second request": State(
        "kb", get("/a") + b"GET", b"]}}", 1, busy=False, outcome="completed"
    ),
    "in a body that passes": State("kb", POST + b"half"),
    "in a body that is judged": State("kb", JUDGED + b"half"),
    "lingering": State("kb", REFUSED + b"half", b"DENY"),
    "the data source is silent": State("kb", get("/silent"), at_source=1),
    "behind one that is silent": State("kb", get("/silent") + get("/a") * 3, at_source=1),
    "a response streams": State("kb", get("/stream"), b"abc", 1),
    "events": State("kb", get("/events"), b"data: 1", 1),
    "a look-up": State(
        "qdrant",
        b"POST /collections/alias/points/query HTTP/1.1\r\nHost: kb.test\r\n"
        b"Content-Type: application/json\r\nContent-Length: 15\r\n\r\n" + b'{"query":[0.1]}',
        at_source=1,
        silent=True,
    ),
    "reads nothing": State("kb", get("/endless"), b"\r\n\r\n", 1),
    "websocket": State("kb", SOCKET, b"hello", 1),
    "absolute form": State(FORWARD_PROXY, get("http://kb.test/silent"), at_source=1),
    "a new tunnel": State(FORWARD_PROXY, TUNNEL, b"established\r\n\r\n"),
    "an idle tunnel": State(FORWARD_PROXY, TUNNEL + get("/a"), b"]}}", 1, outcome="completed"),
    "in a tunnel": State(FORWARD_PROXY, TUNNEL + get("/silent"), b"established\r\n\r\n", 1),
    "websocket in a tunnel": State(FORWARD_PROXY, TUNNEL + SOCKET, b"hello", 1),
    "an unread tunnel": State(FORWARD_PROXY, TCP + b"hi", b"established\r\n\r\nhi"),
    "tcp": State("tcp", b"hi", b"hi"),
    "redirected, new": State(TRANSPARENT, b""),
    "redirected, in a hello": State(TRANSPARENT, HELLO),
    "redirected": State(TRANSPARENT, get("/silent"), at_source=1),
    "redirected, idle": State(TRANSPARENT, get("/a"), b"]}}", 1, outcome="completed"),
    "websocket, redirected": State(TRANSPARENT, SOCKET, b"hello", 1),
    "in a handshake": State("secure", HELLO),
}


async def _never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
    await waiting.never()


async def _in(ports: EveryPort, state: State) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    before = len(ports.upstream.begun)
    if state.silent:
        ports.upstream.script = _never
    reader, writer = await ports.open(state.port)
    writer.write(state.sent)
    async with asyncio.timeout(waiting.PATIENCE):
        if state.until:
            await reader.readuntil(state.until)
    await waiting.until_async(
        "the source has the request",
        lambda: len(ports.upstream.begun) >= before + state.at_source,
    )
    await waiting.until_async(
        "the agent is connected",
        lambda: ports.proxy.agent_connections or state.port == "secure",
    )
    await waiting.turns()
    return reader, writer


async def _ended(reader: asyncio.StreamReader) -> bytes:
    """What still came, to the end of the connection."""
    got = b""
    async with asyncio.timeout(waiting.PATIENCE):
        try:
            while part := await reader.read(1 << 20):
                got += part
        except ConnectionError:
            pass
    return got


@pytest.mark.parametrize("name", STATES)
async def test_a_stop_in_each_state_leaves_nothing_open(tmp_path: Path, name: str) -> None:
    state = STATES[name]
    async with every_port(tmp_path) as ports:
        reader, writer = await _in(ports, state)
        async with asyncio.timeout(waiting.PATIENCE):
            await ports.proxy.close(SHORT if state.busy else LONG)
        assert ports.proxy.agent_connections == ports.proxy.source_connections == 0
        assert b"HTTP/1.1 200" not in await _ended(reader)
        writer.close()
        await ports.nothing_left()
        for decision, ended in (await ports.outcomes()).values():
            assert ended == ([] if decision == "DENY" or POST in state.sent else [state.outcome])


@pytest.mark.parametrize("name", ["the data source is silent", "in a tunnel", "redirected"])
async def test_an_open_request_finishes_at_a_stop_and_ends_its_connection(
    tmp_path: Path, name: str
) -> None:
    go_on = asyncio.Event()

    async def later(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await answer(body=b"whole")(seen, writer)

    async with every_port(tmp_path) as ports:
        ports.upstream.script = later
        reader, writer = await _in(ports, STATES[name])
        async with asyncio.TaskGroup() as group:
            group.create_task(ports.proxy.close(LONG))
            await waiting.turns()
            writer.write(get("/late"))
            await waiting.turns()
            go_on.set()
            received = await _ended(reader)
        assert received.startswith(b"HTTP/1.1 200 ")
        assert received.endswith(b"whole")
        assert b"Connection: close" in received
        assert ports.upstream.targets == ["/silent"]
        writer.close()
        await ports.nothing_left()


# asyncio's own loop loses a connection that it accepts while its server is closed: it is never
# given to a protocol. The sidecar runs on uvloop.
@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_arrives_with_the_stop_is_ended(tmp_path: Path, turns: int) -> None:
    async with every_port(tmp_path) as ports:
        # Without a turn of the loop: the system has accepted them, and the sidecar has not.
        found = [socket.create_connection(("127.0.0.1", ports.proxy.port(port))) for port in PORTS]
        await waiting.turns(turns)
        async with asyncio.timeout(waiting.PATIENCE):
            await ports.proxy.close(SHORT)
        for each in found:
            each.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=each)
            assert await _ended(reader) == b""
            writer.close()
        await ports.nothing_left()


async def test_an_answer_is_not_sent_if_its_record_is_unwritten_at_a_stop(tmp_path: Path) -> None:
    """The data source has answered, and its answer goes nowhere."""
    async with held(tmp_path) as (setup, disk):
        reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        writer.write(get("/a"))
        await waiting.until_async("it has answered", lambda: setup.upstream.seen)
        await waiting.turns()
    # The end of the context has stopped the proxy.
    assert await _ended(reader) == b""
    assert [outcome for _, outcome in disk.notes] == ["truncated"]
    writer.close()
