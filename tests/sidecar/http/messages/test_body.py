"""A body while it arrives: what its reader gets, and what the connection is told."""

import asyncio
import tracemalloc

import pytest

from sidecar.http.messages.body import EMPTY, BodyBrokenOff, BodyStream
from tests.support import waiting


class Flow:
    """What a connection was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def body_full(self) -> None:
        self.told.append("full")

    def body_taken(self) -> None:
        self.told.append("taken")


async def test_a_reader_gets_what_has_arrived_at_once() -> None:
    body = BodyStream()
    body.append(b"a")
    body.append(b"")
    body.append(b"b")
    assert await body.next(10) == b"ab"
    assert not body.settled
    body.append(b"c")
    body.end()
    assert (body.complete, body.taken, body.total_bytes) == (True, False, 3)
    assert await body.next(10) == b"c"
    assert body.taken
    assert await body.next(10) == b""


@pytest.mark.parametrize("last", [b"more", b""])
async def test_a_reader_that_waits_is_woken(last: bytes) -> None:
    body = BodyStream()
    reading = asyncio.create_task(body.next(10))
    await waiting.turns()
    assert not reading.done()
    body.append(last)
    body.end()
    assert await reading == last


async def test_a_broken_body_does_not_look_complete() -> None:
    body = BodyStream()
    body.append(b"half")
    body.fail(BodyBrokenOff())
    with pytest.raises(BodyBrokenOff):
        await body.next(10)
    with pytest.raises(BodyBrokenOff):
        body.take()
    assert (body.settled, body.complete, body.taken) == (True, False, False)


async def test_a_reader_that_waits_gets_the_failure() -> None:
    body = BodyStream()
    reading = asyncio.create_task(body.next(10))
    await waiting.turns()
    body.fail(BodyBrokenOff())
    with pytest.raises(BodyBrokenOff):
        await reading


def test_only_the_first_failure_counts_and_none_after_the_end() -> None:
    body, first = BodyStream(), BodyBrokenOff()
    body.fail(first)
    body.fail(ZeroDivisionError())
    assert body.failure is first
    whole = BodyStream.of(b"all")
    whole.fail(first)
    assert (whole.failure, whole.take()) == (None, b"all")


async def test_a_body_that_stalls_is_a_timeout() -> None:
    body = BodyStream()
    with pytest.raises(TimeoutError):
        await body.next(0.01)
    with pytest.raises(TimeoutError):
        await body.next(0)
    body.append(b"late")
    assert await body.next(0) == b"late"


async def test_a_reader_that_was_cancelled_can_be_followed_by_another() -> None:
    body = BodyStream()
    reading = asyncio.create_task(body.next(10))
    await waiting.turns()
    reading.cancel()
    await asyncio.wait((reading,))
    body.append(b"a")
    assert await body.next(10) == b"a"


def test_the_connection_is_notified_once_of_a_full_body_and_once_of_a_read_one() -> None:
    flow = Flow()
    body = BodyStream(3, flow)
    body.append(b"abc")
    assert flow.told == []
    body.append(b"d")
    body.append(b"e")
    assert (body.full, flow.told) == (True, ["full"])
    assert body.take() == b"abcde"
    assert (body.full, flow.told) == (False, ["full", "taken"])
    body.append(b"f")
    body.take()
    assert flow.told == ["full", "taken"]


def test_a_message_without_a_body_counts_as_read() -> None:
    assert (EMPTY.complete, EMPTY.taken, EMPTY.take()) == (True, True, b"")


def test_bytes_that_come_one_by_one_take_little_more_than_their_number() -> None:
    body = BodyStream()
    tracemalloc.start()
    try:
        for at in range(8_192):
            body.append(b"%02d" % (at % 100))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * body.total_bytes
    assert body.take() == b"".join(b"%02d" % (at % 100) for at in range(8_192))
