"""HTTP/2 connections whose client breaks the protocol, or floods the server: frames made by hand
against a connection in memory."""

import asyncio
import logging
import tracemalloc
from collections.abc import Callable

import pytest

from sidecar.http.headers import ResponseHead
from sidecar.http.http2.frame_limits import TURN, Cause
from sidecar.http.http2.session import PREFACE
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.request import Answer, HttpRequest, ResponseSent
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import POST, data, headers, reset, update
from tests.sidecar.http.server.served import LIMITS, Gate, Reply, with_body
from tests.sidecar.http.server.served_http2 import (
    CALM,
    CANCEL,
    NO_ERROR,
    REFUSED,
    STREAM_CLOSED,
    Served,
    ended,
    goaway,
    got,
    resets,
)
from tests.support import waiting
from tests.support.loop_clock import moving_clock

pytestmark = [
    pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"]),
    pytest.mark.deep(
        stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_a_frame_above_the_limit_of_its_kind_is_a_flood"
    ),
]

FLOODS: dict[str, tuple[bytes, int, Cause]] = {
    "SETTINGS": (frames.settings(), 32, Cause.SETTINGS),
    "PING": (frames.ping(), 102, Cause.PING),  # the request allows one more than 100
    "answers to PING": (frames.ping(frames.ACK), 1_001, Cause.OTHER),
    "PRIORITY": (frames.frame(frames.PRIORITY, 1, bytes(4) + b"\x10"), 1_001, Cause.OTHER),
    "unknown frames": (frames.frame(frames.UNKNOWN), 1_001, Cause.OTHER),
    "WINDOW_UPDATE": (frames.update(0, 1), 1_100, Cause.WINDOW_UPDATE),
    "GOAWAY": (frames.goaway(), 1_001, Cause.OTHER),
    "DATA without a byte": (data(1), 101, Cause.DATA),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_ends_the_connection_with_one_record(kind: str) -> None:
    frame, count, cause = FLOODS[kind]
    gate = Gate()
    client = Served(gate)
    found = await client.send(headers(1, frames.POST, end=False), *[frame] * count)
    assert goaway(found) == CALM
    assert len(client.faults) == 1
    assert client.wire.closed
    assert client.wire.connections.service.budget.cut_off == {cause.value: 1}
    assert gate.cancelled == ["/a"], "what was under way is cancelled"
    assert not client.wire.connections.open


async def test_rapid_resets_end_the_connection() -> None:
    client = Served(Gate())
    pairs = [headers(number) + reset(number) for number in range(1, 2_003, 2)]
    assert goaway(await client.send(*pairs[:-1])) is None
    assert goaway(await client.send(pairs[-1])) == CALM
    assert len(client.faults) == 1
    assert len(client.served) == 1_000 + 1, "the last is not even looked at"


@pytest.mark.parametrize(
    "provoke",
    [
        lambda number: headers(number, (*frames.GET, (b"X-Upper", b"1"))),
        lambda number: headers(number, (*frames.GET, (b"te", b"gzip"))),
        lambda number: headers(number, ((b":method", b"get"), *frames.GET[1:])),
        lambda number: headers(number, frames.POST, end=False) * 2,
        lambda number: (
            headers(number, (*frames.POST, (b"content-length", b"1")), end=False)
            + data(number, b"xx")
        ),
    ],
    ids=["upper case", "te", "method", "head twice", "length"],
)
async def test_resets_that_the_client_provokes_end_the_connection(
    provoke: Callable[[int], bytes],
) -> None:
    client = Served(Gate())
    sent = [provoke(number) for number in range(1, 2_003, 2)]
    first = await client.send(*sent[:499])
    assert goaway(first) is None
    assert len(resets(first)) == 499
    assert goaway(await client.send(*sent[499:])) == CALM
    assert client.wire.closed


@pytest.mark.parametrize("first", [PREFACE + frames.settings(), frames.begin()])
async def test_streams_above_the_limit_are_refused_and_the_others_go_on(first: bytes) -> None:
    gate = Gate()
    client = Served(gate, first=first)
    found = await client.send(b"".join(headers(each) for each in range(1, 207, 2)))
    assert resets(found) == {201: REFUSED, 203: REFUSED, 205: REFUSED}
    assert len(client.served) == 100
    assert goaway(found) is None
    found = await client.send(
        reset(1), headers(207), data(203, b"late"), headers(205, [(b"a", b"")])
    )
    assert (resets(found), len(client.served)) == ({}, 101)
    gate.release("/a")
    assert len(ended(await client.send())) == 100
    assert not client.faults


async def test_refused_streams_count_as_resets() -> None:
    client = Served(Gate())
    await client.send(*(headers(number) for number in range(1, 201, 2)))
    found = await client.send(*(headers(number) for number in range(201, 2_203, 2)))
    assert goaway(found) == CALM
    assert len(client.faults) == 1
    assert client.wire.closed


async def test_a_segment_of_many_frames_is_handled_in_turns() -> None:
    client = Served(with_body)
    await client.send(headers(1, POST, end=False))
    [request] = client.served
    client.wire.send(data(1, b"x") * 20_000)
    assert request.body.total_bytes == TURN
    paused = [client.wire.reading_paused]
    assert paused == [True], "more than a buffer waits"
    client.wire.send(data(1, b"x") * 10)
    assert request.body.total_bytes == TURN
    client.wire.send(data(1, end=True))
    client.wire.end()
    await waiting.turns(3)
    assert request.body.total_bytes <= 5 * TURN
    found = await client.send()
    while client.wire.reading_paused:
        found += await client.send()
    assert (got(found, 1), ended(found)) == (20_010, [1])


async def test_heads_that_stand_for_much_fill_little_memory() -> None:
    # An index of one byte stands for a field of 4,000 bytes.
    base, field = frames.fields(frames.GET), b"\x40\x01x\x7f\xa1\x1e" + b"a" * 4_000
    client = Served(Gate(), limits=LIMITS._replace(head=HeadLimits(5_000, 5_000, 128)))
    await client.send(frames.frame(frames.HEADERS, 1, base + field, 5))
    many = frames.frame(frames.HEADERS, 3, base + b"\xbe" * 15, 5)
    pairs = [many[:5] + n.to_bytes(4, "big") + many[9:] + reset(n) for n in range(3, 1_803, 2)]
    tracemalloc.start()
    try:
        client.wire.send(b"".join(pairs))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3_000_000, "what one turn's frames stand for"
    while len(client.served) < 901:
        await client.send()
    assert not client.faults


BROKEN = {
    "no SETTINGS": PREFACE + frames.ping(),
    "PUSH_PROMISE": frames.frame(frames.PUSH_PROMISE, 1, bytes(4), frames.END_HEADERS),
    "even stream": headers(2),
    "stream 0": headers(0),
    "DATA on stream 0": data(0, b"x"),
    "DATA on an idle stream": data(9, b"x"),
    "WINDOW_UPDATE on an idle stream": update(9, 1),
    "RST_STREAM on an idle stream": reset(9),
    "RST_STREAM too short": frames.frame(frames.RST_STREAM, 1, b"\0"),
    "PING too short": frames.frame(frames.PING, 0, b"\0"),
    "PING on a stream": frames.frame(frames.PING, 1, bytes(8)),
    "SETTINGS of a wrong size": frames.frame(frames.SETTINGS, 0, bytes(5)),
    "SETTINGS on a stream": frames.frame(frames.SETTINGS, 1),
    "SETTINGS that allow too large windows": frames.settings({frames.INITIAL_WINDOW: 1 << 31}),
    "SETTINGS of too short frames": frames.settings({frames.MAX_FRAME: 1}),
    "an answer to no SETTINGS": frames.settings(flags=frames.ACK),
    "CONTINUATION alone": frames.frame(frames.CONTINUATION, 1, b"", frames.END_HEADERS),
    "CONTINUATION of another stream": headers(1, flags=0)
    + frames.frame(frames.CONTINUATION, 3, b"", frames.END_HEADERS),
    "a frame within a head": headers(1, flags=0) + frames.ping(),
    "HEADERS on a stream that has ended": headers(1) + headers(1),
    "DATA on a stream that has ended": headers(1) + data(1, b"x"),
    "padding longer than its frame": headers(1, frames.POST, end=False)
    + frames.frame(frames.DATA, 1, b"\x09abc", frames.PADDED),
    "a head that HPACK can't read": frames.frame(frames.HEADERS, 1, b"\xff\xff\xff\xff\xff\xff", 5),
    "a table larger than allowed": frames.frame(frames.HEADERS, 1, b"\x3f\xe1\xff\x03", 5),
    "a frame that is too long": frames.frame(frames.DATA, 1, bytes(16_385)),
    "a window without an increment": headers(1, frames.POST, end=False) + update(0, 0),
    "a window beyond its limit": update(0, 0x7FFFFFFF),
    "too many fields": headers(1, [*frames.GET, *[(b"x", b"1")] * 129]),
    "too long a list of fields": headers(1, [*frames.GET, (b"x", b"1" * 8_000)], flags=0)
    + b"".join(
        frames.frame(frames.CONTINUATION, 1, frames.fields([(b"x", b"1" * 15_000)]))
        for _ in range(8)
    ),
    "too many continuations": headers(1, flags=0) + frames.frame(frames.CONTINUATION, 1) * 9,
}


@pytest.mark.parametrize("size", [0, 1], ids=["at once", "bytewise"])
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_protocol_ends_the_connection_with_one_record(
    kind: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    client = Served(Gate(), first=b"")
    sent = b"" if kind.startswith("no SETTINGS") else frames.begin()
    sent += BROKEN[kind]
    size = size or len(sent)
    found = await client.send(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert goaway(found) is not None
    assert client.wire.closed
    assert len(client.faults) == 1
    [cause] = client.wire.connections.service.budget.cut_off
    long = kind in ("too long a list of fields", "too many continuations")
    assert cause == (Cause.HEAD if long else Cause.PROTOCOL).value
    assert not caplog.records
    assert not client.wire.connections.open


@pytest.mark.parametrize("code", [NO_ERROR, CANCEL])
@pytest.mark.parametrize("together", [True, False])
async def test_a_request_that_its_client_resets_at_once_is_served_and_harms_nothing(
    code: int, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def serve(request: HttpRequest) -> Answer:
        if request.target == "/wait":
            await asyncio.get_running_loop().create_future()
        request.send_continue()
        return Reply(b"whole")

    client = Served(serve)
    for number, target in enumerate([b"/a", b"/wait"] * 3):
        stream = 1 + 2 * number
        head = (*frames.POST[:3], (b":path", target))
        sent = [headers(stream, head, end=False), data(stream, b"abc"), reset(stream, code)]
        found = await client.send(*([b"".join(sent)] if together else sent))
        assert goaway(found) is None
    assert len(client.served) == 6
    found = await client.send(headers(101))
    assert [each.payload for each in found if each.kind == frames.DATA] == [b"whole"]
    assert not caplog.records
    [connection] = client.wire.connections.open
    await connection.cut()
    assert client.wire.closed


@pytest.mark.parametrize("code", [NO_ERROR, CANCEL])
async def test_a_writer_ends_when_its_client_resets_the_stream(code: int) -> None:
    ended: list[BaseException] = []

    async def serve(request: HttpRequest) -> Answer:
        request.begin(ResponseHead(200, b"OK", b"", None))
        try:
            while True:
                request.send(bytes(100_000))
                if request.congested:
                    await request.drain()
        except BaseException as error:
            ended.append(error)
            raise

    client = Served(serve, cancels=False)
    await client.send(headers(1))
    assert not ended
    await client.send(reset(1, code))
    assert [type(each) for each in ended] == [ConnectionResetError]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in part"])
async def test_a_body_whose_stream_is_reset_never_looks_whole(whole: bool) -> None:
    go = asyncio.Event()
    ended: list[object] = []

    async def serve(request: HttpRequest) -> Answer:
        await go.wait()
        try:
            while part := await request.body.next(5):
                ended.append(part)
        except ConnectionError as error:
            ended.append(type(error).__name__)
            raise
        ended.append("whole")
        return Reply(b"")

    client = Served(serve, cancels=False)
    await client.send(headers(1, frames.POST, end=False), data(1, b"x" * 1_000, end=whole))
    await client.send(reset(1))
    go.set()
    await client.send()
    assert ended == ["BodyBrokenOff"]


async def test_a_head_that_is_never_ended_is_cut_off() -> None:
    gate = Gate()
    with moving_clock() as clock:
        client = Served(gate)
        await client.send(headers(1))
        for part in (headers(3, flags=0)[:-1], headers(3, flags=0)[-1:]):
            assert goaway(await client.send(part)) is None
        await clock.skip(59)
        assert goaway(await client.send(frames.frame(frames.CONTINUATION, 3))) is None
        await clock.skip(10)
        assert goaway(await client.send()) == CALM
        assert client.wire.closed
        assert gate.cancelled == ["/a"]
        assert len(client.faults) == 1


async def test_unfinished_heads_are_counted_until_they_or_their_connection_end() -> None:
    client = Served(Gate())
    budget = client.wire.connections.service.budget
    begun = headers(1, flags=0)
    await client.send(begun[:-1])
    assert budget.head_bytes == len(begun) - 1
    more = frames.frame(frames.CONTINUATION, 1, frames.fields([(b"x", b"a" * 800)]))
    await client.send(begun[-1:], more)
    assert budget.head_bytes == len(begun) + len(more)
    assert not client.served
    end = frames.frame(frames.CONTINUATION, 1, b"", frames.END_HEADERS)
    await client.send(end)
    assert budget.head_bytes == 0
    assert client.served[0].fields[-1] == (b"x", b"a" * 800)
    # A body that waits, too: its end is counted, and the head must not be then.
    await client.send(headers(3, POST, end=False), data(3, bytes(100)), headers(5, flags=0))
    assert budget.head_bytes > 100
    client.wire.close()
    await client.wire.settle()
    assert budget.head_bytes == 0


async def test_a_response_that_fails_in_the_middle_is_reset_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def serve(request: HttpRequest) -> Answer:
        if request.target == "/a":
            request.begin(ResponseHead(200, b"OK", b"", b"10"))
            request.send(b"part")
            raise ValueError(request.target)
        return ResponseSent(keep_alive=False)

    client = Served(serve)
    found = await client.send(headers(1), headers(3, (*frames.GET[:3], (b":path", b"/b"))))
    assert resets(found) == {1: CANCEL, 3: CANCEL}
    assert goaway(found) is None
    assert [each.message for each in caplog.records] == ["a stream failed"]


async def test_old_and_unknown_frames_do_nothing() -> None:
    client = Served()
    await client.send(headers(5))
    found = await client.send(
        headers(3)  # below the last one, so closed
        + data(5, b"late")
        + reset(5)
        + update(5, 10)
        + frames.frame(frames.PRIORITY, 7, bytes(4) + b"\x10")
        + frames.frame(frames.UNKNOWN, 7, b"x")
        + frames.frame(frames.ALTSVC, 0, bytes(2))
        + frames.settings({0x99: 1})
        + frames.goaway()
    )
    assert goaway(found) in (None, STREAM_CLOSED)
    assert len([each for each in client.served if not each.fault]) == 1
