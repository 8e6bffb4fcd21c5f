"""The flow of bodies, responses and connections of HTTP/2: credit in both directions, clients that
take little or nothing, and the end of connections."""

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest

from policies.ground.connection_budget import ConnectionBudget
from policies.ground.errors import Unavailable
from sidecar.http.headers import ResponseHead
from sidecar.http.server.request import Answer, HttpRequest, ResponseSent
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import GET, POST, data, headers, reset, update
from tests.sidecar.http.server.served import Gate, Reply, with_body
from tests.sidecar.http.server.served_http2 import (
    CANCEL,
    FLOW_CONTROL,
    NO_ERROR,
    Served,
    ended,
    goaway,
    got,
    head,
    resets,
)
from tests.support.loop_clock import moving_clock

pytestmark = [
    pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"]),
    pytest.mark.deep(
        stands_in="tests/sidecar/http/server/test_http2.py::test_a_slow_reader_of_a_body_stops_its_stream_and_no_other"
    ),
]

WINDOW = 8 * 1024 * 1024
BIG = 400_000
LARGEST = 0x7FFF_FFFF


class Answers:
    """Answers each request with so many bytes, and keeps what came of it."""

    def __init__(self, size: int, *, whole: bool = False) -> None:
        self.size = size
        self.whole = whole
        self.ended: list[str] = []

    async def __call__(self, request: HttpRequest) -> Answer:
        head = ResponseHead(200, b"OK", b"", b"%d" % self.size)
        try:
            if self.whole:
                request.respond(head, bytes(self.size))
                if request.congested:
                    await request.drain()
            else:
                request.begin(head)
                for at in range(0, self.size, 16_384):
                    request.send(bytes(min(16_384, self.size - at)))
                    if request.congested:
                        await request.drain()
                request.end()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("whole")
        return ResponseSent(keep_alive=True, status=200)


# ------------------------------------------------------------------------- credit for the client


def _cut_frame(stream: int) -> tuple[bytes, bytes]:
    sent = headers(stream, POST, end=False) + data(stream, bytes(16_000))
    return sent[:-500], sent[-500:]


LENGTH = (*POST, (b"content-length", b"5"))
UNREAD: dict[str, Callable[[int], tuple[bytes, ...]]] = {
    "refused with its body": lambda n: (headers(n, POST, end=False) + data(n, bytes(16_000)),),
    "refused in the middle of a frame": _cut_frame,
    "padded": lambda n: (headers(n, POST, end=False) + data(n, bytes(16_000), pad=200),),
    "reset": lambda n: (headers(n, POST, end=False) + data(n, bytes(16_000)) + reset(n),),
    "after its reset": lambda n: (headers(n, POST, end=False) + reset(n) + data(n, bytes(16_000)),),
    "longer than announced": lambda n: (headers(n, LENGTH, end=False) + data(n, bytes(16_000)),),
    "behind a malformed head": lambda n: (
        headers(n, (*POST, (b"te", b"x")), end=False) + data(n, bytes(16_000)),
    ),
    "behind a refused head": lambda n: (
        headers(n, (*POST[1:], (b":method", b"get"))[::-1], end=False) + data(n, bytes(16_000)),
    ),
}


@pytest.mark.parametrize("kind", UNREAD)
async def test_unread_bodies_take_nothing_of_the_connections_window(kind: str) -> None:
    client = Served()
    pieces = [piece for number in range(1, 901, 2) for piece in UNREAD[kind](number)]
    found = await client.send(*pieces)
    spent = sum(
        len(each.payload) for each in frames.read(b"".join(pieces)) if each.kind == frames.DATA
    )
    assert spent > 0.8 * WINDOW
    assert goaway(found) is None
    credit = sum(
        each.number for each in found if each.kind == frames.WINDOW_UPDATE and not each.stream
    )
    # Credit comes back once half of the window is used.
    assert 65_535 + credit - spent >= WINDOW // 2


async def test_credit_comes_once_a_reader_took_the_bytes() -> None:
    go = asyncio.Event()

    async def serve(request: HttpRequest) -> Answer:
        await go.wait()
        return await with_body(request)

    client = Served(serve)
    found = await client.send(headers(1, POST, end=False), *[data(1, bytes(10_000))] * 6)
    assert [each for each in found if each.kind == frames.WINDOW_UPDATE and each.stream] == []
    go.set()
    found = await client.send()
    assert sum(each.number for each in found if each.stream == 1) >= 50_000
    found = await client.send(*[data(1, bytes(10_000))] * 6, data(1, end=True))
    assert got(found, 1) == 65_535, "as much as its window allows"
    assert got(await client.send(update(1, LARGEST - 65_535), update(0, 1 << 20)), 1) == 54_465


async def test_bodies_that_wait_fill_the_budget_and_one_beyond_it_is_refused() -> None:
    budget = ConnectionBudget(10, 100_000)
    failed: dict[str, BaseException | None] = {}

    async def serve(request: HttpRequest) -> Answer:
        await go.wait()
        try:
            return await with_body(request)
        except Unavailable:
            failed[request.target] = request.body.failure
            return Reply(b"no room")

    go = asyncio.Event()
    client = Served(serve, budget=budget)
    post = [(*POST[:3], (b":path", each)) for each in (b"/a", b"/b", b"/c")]
    body = [bytes(16_000)] * 4
    await client.send(headers(1, post[0], end=False), *[data(1, each) for each in body])
    assert budget.head_bytes == 64_000
    found = await client.send(headers(3, post[1], end=False), *[data(3, each) for each in body])
    assert budget.head_bytes == 64_000, "what was refused is not held"
    assert goaway(found) is None
    await client.send(headers(5, post[2], end=False), data(5, bytes(16_000), end=True))
    assert budget.head_bytes == 80_000
    go.set()
    found = await client.send(update(0, 1 << 20), data(1, end=True))
    assert [got(found, each) for each in (1, 3, 5)] == [64_000, len(b"no room"), 16_000]
    assert failed.keys() == {"/b"}
    assert budget.head_bytes == 0


async def test_more_than_the_window_allows_ends_the_connection() -> None:
    client = Served(Gate())
    body = [data(1, bytes(16_384))] * 3
    assert goaway(await client.send(headers(1, POST, end=False), *body)) is None
    assert goaway(await client.send(data(1, bytes(16_384)))) == FLOW_CONTROL
    assert len(client.faults) == 1


# --------------------------------------------------------------- responses that wait for the client


async def test_a_response_waits_for_credit_and_goes_on_with_it() -> None:
    answers = Answers(BIG)
    client = Served(answers, frames.begin({frames.INITIAL_WINDOW: 0}))
    found = await client.send(headers(1), headers(3))
    assert (got(found, 1), got(found, 3)) == (0, 0)
    found = await client.send(update(1, 1))
    assert got(found, 1) == 1
    found = await client.send(frames.settings({frames.INITIAL_WINDOW: 1_000}))
    assert (got(found, 1), got(found, 3)) == (1_000, 1_000)
    # The windows become negative.
    found = await client.send(frames.settings({frames.INITIAL_WINDOW: 10}))
    found += await client.send(update(3, 500))
    assert not any(each.kind == frames.DATA for each in found)
    found = await client.send(update(3, 500))
    assert (got(found, 1), got(found, 3)) == (0, 10)
    found = await client.send(
        frames.settings({frames.INITIAL_WINDOW: LARGEST - 2_000}), update(0, 1 << 20)
    )
    assert (got(found, 1), got(found, 3)) == (BIG - 1_001, BIG - 1_010)
    assert sorted(ended(found)) == [1, 3]
    assert answers.ended == ["whole"] * 2


@pytest.mark.parametrize("whole", [True, False])
async def test_a_writer_waits_until_its_response_is_taken(whole: bool) -> None:
    answers = Answers(BIG, whole=whole)
    client = Served(answers)
    found = await client.send(headers(1))
    assert got(found, 1) == 65_535
    assert answers.ended == []
    found = await client.send(update(0, BIG), update(1, BIG))
    assert ended(found) == [1]
    assert answers.ended == ["whole"], "not broken off"


async def test_a_refusal_arrives_whole_before_the_rest_of_its_request_is_stopped() -> None:
    async def serve(_request: HttpRequest) -> Answer:
        return Reply(b"x" * 1_000)

    client = Served(serve, frames.begin({frames.INITIAL_WINDOW: 0}))
    found = await client.send(headers(1, POST, end=False), data(1, bytes(1_000)))
    assert resets(found) == {}
    found = await client.send(update(1, 999), data(1, bytes(1_000)))
    assert (got(found, 1), resets(found)) == (999, {})
    found = await client.send(update(1, 2))
    assert (got(found, 1), ended(found), resets(found)) == (1, [1], {1: NO_ERROR})
    [connection] = client.wire.connections.open
    found = await client.send(headers(3))
    assert got(found, 3) == 0
    await connection.cut()


@pytest.mark.parametrize("size", [1_000, 1_001], ids=["its end too", "its last byte"])
async def test_a_response_for_which_there_is_no_credit_for_a_minute_is_reset(size: int) -> None:
    answers = Answers(size)
    with moving_clock() as clock:
        client = Served(answers, frames.begin({frames.INITIAL_WINDOW: 1_000}))
        found = await client.send(headers(1))
        assert got(found, 1) == 1_000
        assert not ended(found)
        for _ in range(14):
            await clock.skip(5)
            found += await client.send()
        assert resets(found) == {1: CANCEL}
        assert goaway(found) is None
        found = await client.send(headers(3))
        assert got(found, 3) == 1_000, "the connection goes on"


async def test_a_slow_client_is_not_cut_off() -> None:
    answers = Answers(BIG)
    with moving_clock() as clock:
        client = Served(answers)
        found = await client.send(headers(1))
        for _ in range(40):
            await clock.skip(5)
            found += await client.send(update(1, 100), update(0, 100))
        assert resets(found) == {}
        assert got(found, 1) == 65_535 + 40 * 100


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    answers = Answers(10 * BIG)
    with moving_clock() as clock:
        client = Served(answers, frames.begin({frames.INITIAL_WINDOW: LARGEST}))
        client.wire.protocol.pause_writing()
        await client.send(update(0, LARGEST - 65_535), headers(1), headers(3))
        for _ in range(20):
            await clock.skip(5)
        assert client.wire.aborted
        assert client.wire.connections.service.budget.cut_off == {"nothing_taken": 1}
        await client.wire.settle()
        assert not client.wire.connections.open
        assert answers.ended == ["ConnectionResetError"] * 2 or len(answers.ended) == 2


async def test_a_client_that_takes_nothing_of_its_goaway_is_cut_off() -> None:
    with moving_clock() as clock:
        client = Served(Gate())
        client.wire.protocol.pause_writing()
        await client.send(headers(1), *[frames.ping()] * 102)  # it allows one more than 100
        assert not client.wire.closed
        for _ in range(20):
            await clock.skip(5)
        assert client.wire.aborted
        assert len(client.faults) == 1


async def test_large_responses_to_a_client_that_takes_nothing_fill_little_memory() -> None:
    answers = Answers(100 * BIG)
    client = Served(answers)
    tracemalloc.start()
    try:
        await client.send(*(headers(each) for each in range(1, 201, 2)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answers.ended == []
    # 1 MiB, and two parts of each.
    assert held < 1024 * 1024 + 100 * 2 * 16_384 + 2_000_000
    assert got(await client.send(update(1, 20_000), update(0, 20_000)), 1) == 20_000
    [connection] = client.wire.connections.open
    await connection.cut()
    assert len(answers.ended) == 100


async def test_whole_responses_to_a_client_that_takes_nothing_fill_little_memory() -> None:
    size, handed_over, left = 4 * 1024 * 1024, [], []

    async def serve(request: HttpRequest) -> Answer:
        try:
            await request.room(size)
            request.respond(ResponseHead(200, b"OK", b"", b"%d" % size), bytes(size))
            handed_over.append(request)
            if request.congested:
                await request.drain()
        except ConnectionError:
            left.append(request)
            raise
        return ResponseSent(keep_alive=True, status=200)

    client = Served(serve, frames.begin({frames.INITIAL_WINDOW: 0}), cancels=False)
    tracemalloc.start()
    try:
        await client.send(*(headers(each) for each in range(1, 201, 2)))
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(client.served) == 100
    assert len(handed_over) == 8
    assert held < 36 * 1024 * 1024
    assert most < 40 * 1024 * 1024
    # What is sent, or reset, makes room for others.
    found = await client.send(update(1, size), update(0, size))
    assert (got(found, 1), ended(found)) == (size, [1])
    assert len(handed_over) == 9
    await client.send(*(reset(each) for each in range(3, 17, 2)))
    assert len(handed_over) == 16
    await client.send(reset(199))
    assert len(left) == 7 + 1
    client.wire.close()
    await client.wire.settle()
    assert len(handed_over) == 16
    assert len(left) == 99


async def test_a_stuck_stream_does_not_delay_the_others() -> None:
    answers = Answers(BIG)
    client = Served(answers, frames.begin({frames.INITIAL_WINDOW: 0}))
    await client.send(*(headers(each) for each in range(1, 21, 2)), update(0, LARGEST - 65_535))
    found = await client.send(headers(21), update(21, LARGEST))
    assert got(found, 21) == BIG
    assert ended(found) == [21]


# ----------------------------------------------------------------------------- forms of a message


async def test_messages_without_a_body_end_with_their_head() -> None:
    async def serve(request: HttpRequest) -> Answer:
        status = int(request.target[1:])
        body = ResponseHead(status, b"", b"", b"5" if status == 200 else None)
        request.begin(body, empty=True)
        return ResponseSent(keep_alive=True, status=status)

    client = Served(serve)
    await client.send()
    for number, status in enumerate([200, 204, 304]):
        found = await client.send(headers(1 + 2 * number, head(f"/{status}")))
        assert [(each.kind, each.flags & 1) for each in found] == [(frames.HEADERS, 1)]


async def test_a_reply_to_head_has_no_body() -> None:
    client = Served()
    found = await client.send(headers(1, ((b":method", b"HEAD"), *GET[1:])))
    assert (got(found, 1), ended(found)) == (0, [1])


async def test_trailers_of_a_request_end_its_body() -> None:
    client = Served(with_body)
    found = await client.send(
        headers(1, POST, end=False), data(1, b"abc"), headers(1, [(b"x-sum", b"1")])
    )
    assert (got(found, 1), ended(found)) == (3, [1])
    [request] = client.served
    assert request.body.trailers is not None


async def test_a_body_is_asked_for_only_once_it_is_wanted() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.send_continue()
        return await with_body(request)

    client = Served(serve)
    await client.send()
    found = await client.send(headers(1, (*POST, (b"expect", b"100-continue")), end=False))
    assert [each.kind for each in found] == [frames.HEADERS]
    found = await client.send(data(1, b"abc", end=True))
    assert (got(found, 1), ended(found)) == (3, [1])


async def test_a_response_that_ends_before_its_request_stops_that() -> None:
    client = Served()
    found = await client.send(headers(1, POST, end=False))
    assert (ended(found), resets(found)) == ([1], {1: NO_ERROR})
    found = await client.send(data(1, bytes(10_000)), data(1, end=True), headers(3))
    assert ended(found) == [3]
    assert goaway(found) is None
