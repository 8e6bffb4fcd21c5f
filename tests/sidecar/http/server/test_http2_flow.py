"""The flow of bodies, responses and connections of HTTP/2: credit in both directions, clients that
take little or nothing, and the end of connections."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import Callable

import pytest

from sidecar.http.headers import ResponseHead
from sidecar.http.server.request import Answer, HttpRequest, ResponseSent
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import GET, POST, Frame, data, headers, reset, update
from tests.sidecar.http.server.served import LIMITS, Gate, Reply, at_once, with_body
from tests.sidecar.http.server.served_http2 import (
    CANCEL,
    FLOW_CONTROL,
    NO_ERROR,
    Served,
    goaway,
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


def got(found: list[Frame], stream: int) -> int:
    """The bytes of a response's body."""
    return sum(
        len(each.payload) for each in found if (each.kind, each.stream) == (frames.DATA, stream)
    )


def ended(found: list[Frame]) -> list[int]:
    kinds = (frames.DATA, frames.HEADERS)
    return [each.stream for each in found if each.kind in kinds and each.flags & 1]


def head(name: str) -> tuple[tuple[bytes, bytes], ...]:
    return (*GET[:3], (b":path", name.encode()))


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
        await client.wire.settle()
        assert not client.wire.connections.open
        assert answers.ended == ["ConnectionResetError"] * 2 or len(answers.ended) == 2


async def test_a_client_that_takes_nothing_of_its_goaway_is_cut_off() -> None:
    with moving_clock() as clock:
        client = Served(Gate())
        client.wire.protocol.pause_writing()
        await client.send(headers(1), *[frames.ping()] * 101)
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


# ------------------------------------------------------------------------- the end of a connection


async def test_a_connection_that_finishes_still_serves_what_its_client_sent_before_it_knew() -> (
    None
):
    client = Served()
    [connection] = client.wire.connections.open
    closed = connection.finish()
    found = await client.send()
    notice = [each for each in found if each.kind == frames.GOAWAY]
    assert [each.number for each in notice] == [LARGEST]
    assert not closed.done()
    found = await client.send(headers(1))
    assert ended(found) == [1]
    found = await client.send(frames.ping(frames.ACK))
    assert [each.number for each in found if each.kind == frames.GOAWAY] == [1]
    assert client.wire.closed
    await closed


async def test_a_connection_that_finishes_ends_with_its_last_response() -> None:
    gate = Gate()
    client = Served(gate)
    await client.send(headers(1))
    [connection] = client.wire.connections.open
    connection.finish()
    found = await client.send(*[frames.ping(frames.ACK)] * 3)
    assert len([each for each in found if each.kind == frames.GOAWAY]) == 2
    await client.send(headers(3))
    assert gate.targets == ["/a"], "a later stream is not processed"
    gate.release("/a")
    assert ended(await client.send()) == [1]
    assert client.wire.closed


async def test_a_client_that_does_not_answer_delays_the_end_by_a_second_at_most() -> None:
    with moving_clock() as clock:
        client = Served()
        [connection] = client.wire.connections.open
        closed = connection.finish()
        await clock.skip(1.1)
        await client.wire.settle()
        assert closed.done()


@pytest.mark.parametrize("before", ["finish", "flood", "broken"])
async def test_a_connection_may_finish_in_any_state(before: str) -> None:
    gate = Gate()
    client = Served(gate)
    [connection] = client.wire.connections.open
    client.wire.protocol.pause_writing()
    await client.send(headers(1))
    if before == "finish":
        connection.finish()
    else:
        await client.send(*[frames.ping()] * 101 if before == "flood" else [data(0, b"x")])
    connection.finish()
    gate.release("/a")
    await client.send()
    await connection.cut()
    await client.wire.settle()
    assert client.wire.closed
    assert not client.wire.connections.open


async def test_an_idle_connection_is_ended() -> None:
    with moving_clock() as clock:
        client = Served()
        await client.send(headers(1))
        await clock.skip(61)
        await clock.skip(5)
        found = await client.send()
        assert goaway(found) == NO_ERROR
        await clock.skip(2)
        assert client.wire.closed


@pytest.mark.parametrize("seconds", [0.0, 10.0])
async def test_a_client_that_ends_its_sending_side_waits_as_with_http_1(seconds: float) -> None:
    gate = Gate()
    limits = LIMITS._replace(half_close_seconds=seconds)
    with moving_clock() as clock:
        client = Served(gate, limits=limits)
        await client.send(headers(1), headers(3, head("/b")))
        client.wire.end()
        gate.release("/a")
        found = await client.send()
        assert ended(found) == ([1] if seconds else [])
        assert client.wire.closed == (not seconds)
        await clock.skip(11)
        assert client.wire.closed
        assert sorted(gate.cancelled) == (["/b"] if seconds else ["/a", "/b"])


async def test_a_body_breaks_off_when_its_client_ends_its_sending_side() -> None:
    failed: list[str] = []

    async def serve(request: HttpRequest) -> Answer:
        try:
            return await with_body(request)
        except ConnectionError as error:
            failed.append(type(error).__name__)
            raise

    client = Served(serve)
    await client.send(headers(1, POST, end=False), data(1, b"abc"))
    client.wire.end()
    await client.send()
    assert failed == ["BodyBrokenOff"]
    assert client.wire.closed


async def test_streams_of_a_client_that_said_goaway_are_answered() -> None:
    gate = Gate()
    client = Served(gate)
    await client.send(headers(1), headers(3, head("/b")), frames.goaway())
    gate.release("/a", "/b")
    assert sorted(ended(await client.send())) == [1, 3]


async def test_many_streams_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = Served(at_once)
    tasks = asyncio.all_tasks()

    async def some(begin: int) -> None:
        for number in range(begin, begin + 1_000, 2):
            client.wire.send(headers(number, POST, end=False), data(number, b"abc", end=True))
        await client.send()
        client.wire.got = b""
        client.forget()

    await some(1)
    tracemalloc.start()
    try:
        for begin in range(1_001, 6_001, 1_000):
            await some(begin)
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 200_000
    assert asyncio.all_tasks() == tasks
    assert not caplog.records
