"""What request bodies may hold: bytes over all connections, and time on each."""

import asyncio
import itertools
import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.http.request_body import BODY_BUDGET_BYTES, BodyBudget, BodyBudgetExceeded
from sidecar.proxy.limits import LIMITS, ProxyLimits
from tests.sidecar.proxy.raw_client import leave, one
from tests.sidecar.proxy.segmented_agent import OWN, Agent, WayIn, answers, cut, way_in
from tests.support.loop_clock import LoopClock
from tests.support.proxy import listening, policy, sidecar, source
from tests.support.scripted_source import Seen, data_source
from tests.support.waiting import until_async

MIB = 1024 * 1024
UNFINISHED = 3_800_000
QUERY = "/collections/c/points/query"


def budget(entry: WayIn) -> BodyBudget:
    return entry.proxy.endpoints[0].pipeline.bodies


async def begun(entry: WayIn, sent: int) -> Agent:
    """A connection with a body of which `sent` bytes have arrived, and one is missing."""
    agent = await entry.agent()
    head = entry.head("POST", QUERY, f"Content-Length: {sent + 1}")
    await agent.send([head])
    # Made as they are sent: what memory is measured here is the sidecar's.
    await agent.send((b" " * min(65_536, sent - at) for at in range(0, sent, 65_536)), 1)
    for _ in range(5):
        await asyncio.sleep(0)
    return agent


def test_a_budget_grants_no_more_than_it_has() -> None:
    made = BodyBudget(100)
    with made.lease() as one:
        one.grow(60)
        with made.lease() as other:
            other.grow(40)
            with pytest.raises(BodyBudgetExceeded):
                other.grow(1)
            assert made.held == 100
        assert made.held == 60
        one.grow(40)
    assert (made.held, made.refused) == (0, 1)


@pytest.mark.deep(stands_in="test_an_unfinished_body_beyond_the_budget_is_refused")
async def test_many_unfinished_bodies_hold_no_more_than_the_budget(tmp_path: Path) -> None:
    async with way_in(tmp_path, OWN) as made:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            agents = [await begun(made, UNFINISHED) for _ in range(60)]
            held, most = (each - before for each in tracemalloc.get_traced_memory())
        finally:
            tracemalloc.stop()
        bodies = budget(made)
        fits = BODY_BUDGET_BYTES // UNFINISHED
        assert bodies.held <= BODY_BUDGET_BYTES
        # Beyond the bodies, each connection holds its objects, and one of them what was read ahead.
        assert held < BODY_BUDGET_BYTES + 60 * 16 * 1024
        assert most < BODY_BUDGET_BYTES + 60 * 16 * 1024 + 8 * LIMITS.buffer_bytes
        told = [answers(bytes(each.received)) for each in agents]
        assert told[:fits] == [[]] * fits
        assert [[status for status, _ in each] for each in told[fits:]] == [[503]] * (60 - fits)
        assert b"\r\nRetry-After: 1\r\n" in agents[-1].received
        assert bodies.refused == 60 - fits
        # What was turned away comes again once there is room.
        for agent in agents:
            agent.close()
        await until_async("no body is held", lambda: bodies.held == 0)
        again = await begun(made, UNFINISHED)
        await again.send([b" "])
        await again.received_once(lambda read: bool(answers(read)))
        assert [status for status, _ in answers(bytes(again.received))] != [503]
        # Nothing was decided of those that were turned away, and nothing is recorded.
        names = [name for _, name, _ in await made.sidecar.decisions()]
        assert names == ["unreadable_request"]


async def test_an_unfinished_body_beyond_the_budget_is_refused(tmp_path: Path) -> None:
    async with way_in(tmp_path, OWN) as made:
        budget(made).limit = 500_000
        agents = [await begun(made, 200_000) for _ in range(4)]
        told = [answers(bytes(each.received)) for each in agents]
        assert [[status for status, _ in each] for each in told] == [[], [], [503], [503]]
        assert b"\r\nRetry-After: 1\r\n" in agents[-1].received
        assert (budget(made).refused, 400_000 <= budget(made).held <= 500_000) == (2, True)
        for agent in agents:
            agent.close()
        await until_async("no body is held", lambda: budget(made).held == 0)
        assert await made.sidecar.decisions() == []


async def test_a_body_is_counted_until_its_request_is_answered(tmp_path: Path) -> None:
    answer = asyncio.Event()

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        told = b'{"result":{"aliases":[]}}'
        if seen.target != "/aliases":
            await answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))

    async with way_in(tmp_path, OWN) as made:
        made.upstream.script = script
        body = b'{"query": [0.1]}' + b" " * 200_000
        agent = await made.agent()
        await agent.send([made.head("POST", QUERY, f"Content-Length: {len(body)}"), body])
        await until_async(
            "the source has the request",
            lambda: any(each.target == QUERY for each in made.upstream.seen),
        )
        assert budget(made).held == len(body)
        answer.set()
        await agent.received_once(lambda read: bool(answers(read)))
        await until_async("no body is held", lambda: budget(made).held == 0)
        agent.close()


async def test_sources_and_ports_share_one_budget(tmp_path: Path) -> None:
    bodies = BodyBudget(MIB)
    async with sidecar(tmp_path) as made:
        both = [source(9, "qdrant", alias=alias) for alias in ("one", "two")]
        proxy = made.proxy(both, bodies=bodies)
        assert {each.pipeline.bodies for each in proxy.endpoints} == {bodies}


# ---------------------------------------------------------------------------------------- deadlines


@asynccontextmanager
async def short(tmp_path: Path, **changed: float) -> AsyncIterator[WayIn]:
    limits: ProxyLimits = replace(LIMITS, **changed)  # type: ignore[arg-type]  # all are seconds
    async with way_in(tmp_path, OWN, "qdrant", limits) as made:
        yield made


async def test_a_body_that_dribbles_has_one_deadline(tmp_path: Path, clock: LoopClock) -> None:
    async with short(tmp_path, inspected_seconds=600.0, lingering_seconds=0.0) as made:
        agent = await made.agent()
        await agent.send([made.head("POST", QUERY, "Content-Length: 5000")])
        for _ in range(20):
            if not agent.received:
                await agent.send([b" "])
                await clock.skip(60)
        await agent.received_once(lambda read: bool(answers(read)))
        [(status, body)] = answers(bytes(agent.received))
        assert (status, b"did not arrive in time" in body) == (400, True)
        assert [each[:2] for each in await made.sidecar.decisions()] == [
            ("DENY", "unreadable_request")
        ]


async def test_a_body_in_single_bytes_arrives(tmp_path: Path) -> None:
    async with way_in(tmp_path, OWN) as made:
        body = b'{"query": [0.1]}' + b" " * 3000
        head = made.head("POST", QUERY, f"Content-Length: {len(body)}")
        agent = await made.agent()
        await agent.send([head, *cut(body, itertools.repeat(1))])
        await agent.received_once(lambda read: bool(answers(read)))
        assert answers(bytes(agent.received)) == [(200, b"%d" % len(body))]
        agent.close()


async def test_an_upload_that_stops_ends_with_408(tmp_path: Path) -> None:
    limits = replace(LIMITS, upload_idle_seconds=0.3)
    async with (
        data_source() as upstream,
        sidecar(tmp_path) as made,
        listening(made, source(upstream.port, writes="allow"), limits) as port,
    ):
        answered = await one(port, b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        assert (answered.status, answered.fields["connection"]) == (408, "close")
        assert not upstream.begun[0].whole or not upstream.seen
        await until_async("the source's connections are closed", lambda: upstream.open == 0)


async def test_a_slow_upload_that_makes_progress_is_not_cut_off(
    tmp_path: Path, clock: LoopClock
) -> None:
    limits = replace(LIMITS, upload_idle_seconds=600.0)
    async with (
        data_source() as upstream,
        sidecar(tmp_path) as made,
        listening(made, source(upstream.port, writes="allow"), limits) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n")
        for sent in range(1, 9):
            writer.write(b"x")
            await until_async(
                "the source has the body so far",
                lambda n=sent: [len(each.body) for each in upstream.begun] == [n],  # type: ignore[misc]
            )
            await clock.skip(400)  # together longer than one may take
        assert b" 200 " in await reader.readline()
        assert upstream.seen[0].body == b"x" * 8
        writer.close()


async def test_an_answer_that_stops_is_broken_off(tmp_path: Path) -> None:
    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(30)

    limits = replace(LIMITS, stream_idle_seconds=0.3)
    async with (
        data_source(script) as upstream,
        sidecar(tmp_path) as made,
        listening(made, source(upstream.port), limits) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(10):
            told = await reader.read()
        assert told.endswith(b"\r\n\r\nhalf")
        assert [each["outcome"] for each in await made.lineage()] == ["truncated"]
        writer.close()


async def test_an_agent_that_reads_nothing_is_cut_off(tmp_path: Path) -> None:
    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        for _ in range(64):
            writer.write(bytes(MIB))
            await writer.drain()

    limits = replace(LIMITS, stream_idle_seconds=0.3)
    async with (
        data_source(script) as upstream,
        sidecar(tmp_path, policy()) as made,
        listening(made, source(upstream.port), limits) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        await until_async("one connection is open", lambda: upstream.open == 1)
        await until_async("the source's connections are closed", lambda: upstream.open == 0)
        assert [each["outcome"] for each in await made.lineage()] == ["truncated"]
        del reader
        writer.close()


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("kind", ["qdrant", "rest"])
async def test_an_agent_that_hangs_up_in_mid_body_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, resets: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        data_source() as upstream,
        sidecar(tmp_path) as made,
        listening(made, source(upstream.port, kind, writes="allow")) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        fields = "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n"
        writer.write(f"POST {QUERY} HTTP/1.1\r\nHost: a\r\n{fields}".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"half")
        leave(writer) if resets else writer.close()
        await until_async("it says that the agent hung up", lambda: "hung up" in caplog.text)
        # The next request is served as ever.
        answered = await one(port, b"GET /aliases HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answered.status in (200, 502)
    lines = [
        each for each in caplog.records if each.name.startswith(("sidecar.http", "sidecar.proxy"))
    ]
    assert [(each.levelno, each.exc_info) for each in lines] == [(logging.INFO, None)]
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
