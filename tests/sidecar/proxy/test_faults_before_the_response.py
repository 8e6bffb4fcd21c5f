"""What goes wrong between the decision and the response: no request is sent twice, no outcome
recorded twice, and no agent gets a response that wasn't for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sidecar.http.server.connection import ServerConnection
from sidecar.http.server.connections import Connections
from sidecar.protocols.protocol import ProtocolRoute, RouteClass, RouteMatch
from sidecar.proxy.assembly import Proxy
from sidecar.proxy.local_response import Fields, event_fields
from sidecar.proxy.pipeline import request_context
from sidecar.spool.errors import SpoolUnwritable
from tests.runner import tiers
from tests.sidecar.proxy.pipeline.test_kept_connections import Talk
from tests.sidecar.proxy.raw_client import get
from tests.sidecar.proxy.test_durability import Held
from tests.support import waiting
from tests.support.proxy import Sidecar, sidecar, source, warm
from tests.support.scripted_source import DataSource, Seen, answer, data_source
from tests.support.waiting import until_async


class Warm:
    """A listener with an idle connection to its data source, and its parts."""

    def __init__(self, proxy: Proxy, upstream: DataSource, made: Sidecar) -> None:
        self.proxy, self.upstream, self.sidecar = proxy, upstream, made
        self.port = proxy.port("kb")

    async def talk(self) -> Talk:
        return Talk(*await asyncio.open_connection("127.0.0.1", self.port))


@asynccontextmanager
async def warmed(made: Sidecar) -> AsyncIterator[Warm]:
    async with data_source() as upstream:
        proxy = made.proxy((source(upstream.port),))
        await proxy.start()
        await warm(proxy)
        try:
            yield Warm(proxy, upstream, made)
        finally:
            await proxy.close(1)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Warm]:
    async with sidecar(tmp_path) as one, warmed(one) as found:
        yield found


async def test_a_record_lost_after_the_answer_causes_no_second_request(tmp_path: Path) -> None:
    async with sidecar(tmp_path) as one:
        slow = Held(one)
        async with warmed(one) as found:
            talk = await found.talk()
            talk.writer.write(get("/a"))
            await until_async(
                "the source has the request", lambda: found.upstream.targets == ["/a"]
            )
            await waiting.turns()
            slow.waiting[0].set_exception(SpoolUnwritable("the disk did not take the record"))
            assert (await talk.answer()).status == 503
            await waiting.turns()
            assert found.upstream.targets == ["/a"]
            assert slow.notes == []


async def test_an_agent_that_leaves_as_its_answer_arrives_is_recorded_once(
    made: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ServerConnection] = []
    connect = Connections.__call__

    def noting(self: Connections) -> ServerConnection:
        opened.append(connect(self))
        return opened[-1]

    def leave_first(event_id: str, *, report_only: bool) -> Fields:
        opened[0].reset()
        return event_fields(event_id, report_only=report_only)

    monkeypatch.setattr(Connections, "__call__", noting)
    # Made right before the response begins.
    monkeypatch.setattr(request_context, "event_fields", leave_first)
    talk = await made.talk()
    talk.writer.write(get("/a"))
    await until_async("the source has the request", lambda: made.upstream.targets == ["/a"])
    await waiting.turns()
    [lineage] = await made.sidecar.lineage()
    assert lineage["outcome"] == "truncated"
    [counted] = made.sidecar.metrics.requests.collect()
    counts = [(list(each.labels.values()), each.value) for each in counted.samples if each.value]
    assert counts == [(["rest", "ALLOW", "none"], 1)]


@pytest.mark.parametrize("parts", [1, 2])
async def test_an_open_request_at_the_end_is_answered(made: Warm, parts: int) -> None:
    may_answer = asyncio.Event()

    async def late(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await may_answer.wait()
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        at = len(whole) if parts == 1 else 20
        writer.write(whole[:at])
        await writer.drain()
        await waiting.turns()
        writer.write(whole[at:])

    made.upstream.script = late
    talk = await made.talk()
    talk.writer.write(get("/a"))
    await until_async("the source has the request", lambda: made.upstream.targets == ["/a"])
    closing = asyncio.get_running_loop().create_task(made.proxy.close(3))
    await waiting.turns()
    may_answer.set()
    found = await talk.answer()
    assert (found.status, found.body) == (200, b"hello")
    assert await talk.reader.read() == b""
    await closing
    assert await made.sidecar.lineage(), "what it returned is in the log"


REST = b"HTTP/1.1 200 OK\r\nX-Of: another\r\nContent-Length: 4\r\n\r\nevil"


@pytest.mark.parametrize("at", [1, 10, 30, 50, 52, 55])
@pytest.mark.parametrize("late", [False, True], ids=["with-the-answer", "at-rest"])
async def test_the_beginning_of_an_unrequested_answer_ends_its_connection(
    made: Warm, at: int, late: bool
) -> None:
    """The next request on it would get that answer."""

    async def more(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/a":
            whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            if late:
                writer.write(whole)
                await writer.drain()
                await waiting.turns()
                writer.write(REST[:at])
            else:
                writer.write(whole + REST[:at])
        else:
            writer.write(REST[at:])
            await answer(body=b"own")(seen, writer)

    made.upstream.script = more
    talk = await made.talk()
    assert (await talk.ask(get("/a"))).body == b"ok"
    await waiting.turns()
    found = await talk.ask(get("/b"))
    assert b"evil" not in found.raw
    assert "x-of" not in found.fields


@tiers.sampled("whole", "pieces", each=2)
@pytest.mark.parametrize(
    "whole",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("pieces", ["one", "head-and-body", "bytes"])
async def test_a_connection_whose_answer_ended_is_used_again(
    made: Warm, whole: bytes, pieces: str
) -> None:
    cut = {
        "one": [whole],
        "head-and-body": [*whole.partition(b"\r\n\r\n")],
        "bytes": [whole[at : at + 1] for at in range(len(whole))],
    }[pieces]

    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        for part in cut:
            writer.write(part)
            await writer.drain()
            await waiting.turns()
        written.release()

    made.upstream.script = script
    written = asyncio.Semaphore(0)
    for number in range(3):
        talk = await made.talk()
        status = whole.split()[1].decode()
        talk.writer.write(get(f"/{number}"))
        assert (await talk.reader.readline()).split()[1].decode() == status
        await written.acquire()
        await waiting.turns()
        talk.writer.close()
    assert made.upstream.connections == 1


async def test_a_request_without_any_source_is_denied_to_every_agent(
    made: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made.proxy.endpoints[0].pipeline.protocol, "match", lambda *_: _OF_NOTHING)
    talk = await made.talk()
    found = await talk.ask(get("/a"))
    assert found.status == 403
    assert made.upstream.begun == []
    assert await made.sidecar.decisions() == [("DENY", "unresolved_source", "rest://kb")]


async def _nothing(_rest: object, _asked: object) -> tuple[()]:
    return ()


_OF_NOTHING = RouteMatch(
    ProtocolRoute(
        "GET", "/**", RouteClass.RETRIEVE, _nothing, find_sources_now=lambda _rest, _asked: ()
    ),
    (),
)
