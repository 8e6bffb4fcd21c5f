"""Every body up to the limit reaches the data source, and every request is answered, however they
are cut into segments and however many come at once, over every way in."""

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.raw_client import get
from tests.sidecar.proxy.segmented_agent import WAYS, WayIn, answers, chunks, cut, way_in
from tests.support.properties import examples
from tests.support.proxy import proxy_setup
from tests.support.scripted_source import Seen

QUERY = b'{"query": [0.1], "limit": 1}'
LARGEST = LIMITS.inspected_bytes
SECONDS = 20

WaysIn = dict[tuple[str, str], WayIn]
AllDoors = tuple[asyncio.Runner, WaysIn]


class Message(NamedTuple):
    """A request with a body of `size` bytes, in chunks of `chunk` bytes or, for 0, with a
    length."""

    size: int
    chunk: int = 0

    def body(self, kind: str) -> bytes:
        if kind == "rest":
            return b"x" * self.size
        return QUERY + b" " * max(0, self.size - len(QUERY))

    def encoded(self, entry: WayIn) -> bytes:
        method, path = ("PUT", "/file")
        if entry.kind == "qdrant":
            method, path = ("POST", "/collections/c/points/query")
        body = self.body(entry.kind)
        if self.chunk:
            head = entry.head(method, path, "Transfer-Encoding: chunked")
            return head + chunks(body, self.chunk)
        return entry.head(method, path, f"Content-Length: {len(body)}") + body


@pytest.fixture(scope="module")
def doors() -> Iterator[AllDoors]:
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stack = AsyncExitStack()
        found: WaysIn = {}
        for way, kind in itertools.product(WAYS, ("qdrant", "rest")):
            made = way_in(Path(folder, f"{way}-{kind}"), way, kind)
            found[way, kind] = runner.run(stack.enter_async_context(made))
        yield runner, found
        runner.run(stack.aclose())


async def sent(entry: WayIn, messages: list[Message], sizes: Iterator[int], turns: int = 0) -> None:
    """Sends them one behind the other on one connection; each arrives as it is, and is answered."""
    entry.upstream.seen.clear()
    agent = await entry.agent()
    data = b"".join(each.encoded(entry) for each in messages)
    async with asyncio.timeout(SECONDS):
        await agent.send(map(agent.sealed, cut(data, sizes)), turns)
        received = await agent.received_once(lambda read: len(answers(read)) >= len(messages))
    bodies = [each.body(entry.kind) for each in messages]
    assert answers(received) == [(200, b"%d" % len(body)) for body in bodies]
    arrived = [each.body for each in entry.upstream.seen if each.target != "/aliases"]
    assert arrived == bodies
    agent.close()


WHOLE = 1 << 24
"""A segment that holds everything."""


@pytest.mark.parametrize("kind", ["qdrant", "rest"])
@pytest.mark.parametrize("way", WAYS)
class TestEveryWay:
    @pytest.mark.parametrize(
        ("message", "segment"),
        [
            (Message(300_000), 1460),
            (Message(300_000, 1000), 65_536),
            (Message(700_000), WHOLE),
            (Message(3_000_000), 262_144),
            (Message(LARGEST, 65_536), WHOLE),
        ],
        ids=str,
    )
    def test_a_large_body_arrives(
        self, doors: AllDoors, way: str, kind: str, message: Message, segment: int
    ) -> None:
        runner, found = doors
        runner.run(sent(found[way, kind], [message], itertools.repeat(segment)))

    @pytest.mark.parametrize("count", [32, 33, 50, 200])
    def test_any_number_of_requests_in_one_write_is_answered(
        self, doors: AllDoors, way: str, kind: str, count: int
    ) -> None:
        runner, found = doors
        runner.run(sent(found[way, kind], [Message(40)] * count, itertools.repeat(WHOLE)))

    def test_requests_after_a_late_body_are_answered(
        self, doors: AllDoors, way: str, kind: str
    ) -> None:
        """The parser counts a request when it is whole: one that was taken off its queue before
        that stays counted, and the parser stops one short of the queue's length."""
        runner, found = doors
        late = Message(1000)
        segments = itertools.chain(
            [len(late.encoded(found[way, kind])) - 500], itertools.repeat(WHOLE)
        )
        runner.run(sent(found[way, kind], [late, *[Message(40)] * 60], segments, 20))

    def test_a_body_behind_very_many_chunks_arrives(
        self, doors: AllDoors, way: str, kind: str
    ) -> None:
        """So many chunks pause the parser behind the last of them, where nothing is left to be
        resumed: it stops in the next body instead."""
        runner, found = doors
        most = LIMITS.buffer_bytes // 16
        for count in range(most - 1, most + 3):
            first, second = Message(count, 1), Message(1000)
            begins = len(first.encoded(found[way, kind]))
            head = len(second.encoded(found[way, kind])) - 1000
            segments = itertools.chain([begins, head], itertools.repeat(WHOLE))
            runner.run(sent(found[way, kind], [first, second], segments, 20))


_SIZES = st.one_of(
    st.integers(0, 2000),
    st.integers(0, 200_000),
    st.sampled_from([65_536, 131_072, 131_073, 262_144, 700_000, 1_500_000, 3_000_000, LARGEST]),
)
_CHUNKS = st.sampled_from([0, 0, 0, 1, 7, 1000, 16_384, 65_536, 1_000_000])
_SEGMENTS = st.lists(
    st.one_of(st.integers(1, 2000), st.integers(1, 300_000), st.just(1460), st.just(1 << 23)),
    min_size=1,
    max_size=6,
)


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    if draw(st.booleans()):
        count = draw(st.integers(1, 120))
        return [Message(draw(st.integers(0, 300)), draw(_CHUNKS)) for _ in range(count)]
    count = draw(st.integers(1, 4))
    found = []
    for _ in range(count):
        size = draw(_SIZES)
        # Chunks of one byte by the million would only make the test slow.
        chunk = draw(_CHUNKS)
        found.append(Message(size, max(chunk, size // 20_000) if chunk else 0))
    return found


@pytest.mark.deep(stands_in="TestEveryWay::test_a_large_body_arrives")
@given(
    way=st.sampled_from(WAYS),
    kind=st.sampled_from(["qdrant", "rest"]),
    sent_at_once=messages(),
    segments=_SEGMENTS,
    turns=st.integers(0, 3),
)
@examples(60)
def test_every_segmentation_has_the_same_result(
    doors: AllDoors,
    way: str,
    kind: str,
    sent_at_once: list[Message],
    segments: list[int],
    turns: int,
) -> None:
    runner, found = doors
    total = sum(each.size for each in sent_at_once)
    # A segment of a few bytes is tried for small messages: what it shows does not need megabytes.
    sizes = [max(size, total // 3000) for size in segments]
    runner.run(sent(found[way, kind], sent_at_once, itertools.cycle(sizes), turns))


async def test_an_answer_behind_very_many_chunks_arrives(tmp_path: Path) -> None:
    """The data source's connection pauses in the same way as the agent's."""
    most = LIMITS.buffer_bytes // 16
    bodies = [b"x" * (most + 1), b"y" * 1000]

    async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/0":
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head + chunks(bodies[0], 1))
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)  # the head has to arrive alone
        writer.write(bodies[1])

    async with proxy_setup(tmp_path) as setup:
        setup.upstream.script = script
        for number, body in enumerate(bodies):
            answered = await setup.ask(get(f"/{number}"))
            assert answered.status == 200
            assert answered.body.count(body[:1]) == len(body)
        assert setup.upstream.connections == 1


@pytest.mark.parametrize("kind", ["qdrant", "rest"])
def test_a_body_that_arrives_while_the_sidecar_stops_is_not_cut_off(
    doors: AllDoors, kind: str
) -> None:
    runner, found = doors
    entry = found["own", kind]
    message = Message(2_000_000)

    async def stops_in_mid_body() -> bytes:
        entry.upstream.seen.clear()
        agent = await entry.agent()
        data = message.encoded(entry)
        await agent.send(cut(data[:1_000_000], itertools.repeat(65_536)), 2)
        server = entry.proxy.listeners["kb"].server
        assert server is not None
        server.finish()
        await agent.send(cut(data[1_000_000:], itertools.repeat(65_536)), 2)
        return await agent.received_once(lambda read: bool(answers(read)))

    received = runner.run(stops_in_mid_body())
    assert answers(received) == [(200, b"2000000")]
    assert b"Connection: close" in received
    assert entry.upstream.seen[-1].body == message.body(kind)
