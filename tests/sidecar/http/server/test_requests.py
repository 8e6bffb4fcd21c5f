"""Requests on one connection are served in order, one at a time, and read no faster than that."""

import asyncio
import logging

import pytest

from sidecar.http.server.request import Answer, Deferred, HttpRequest, ResponseSent
from tests.sidecar.http.server.served import (
    LIMITS,
    Client,
    Gate,
    Reply,
    at_once,
    get,
    post,
    with_body,
)
from tests.support import waiting

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])


async def test_a_handler_that_never_waits_answers_at_once() -> None:
    client = Client(at_once)
    before = asyncio.all_tasks()
    client.send(get("/a") + get("/b"), get("/c"))
    assert client.got == b"[/a][/b][/c]"
    assert asyncio.all_tasks() == before
    assert not client.is_closing()


async def test_requests_are_handled_one_at_a_time_and_in_order() -> None:
    gate = Gate()
    client = Client(gate)
    client.send(get("/a") + get("/b"), get("/c"))
    assert gate.targets == ["/a"]
    gate.release("/b", "/c")
    assert await client.settle() == b""
    gate.release("/a")
    assert await client.settle() == b"[/a][/b][/c]"
    assert gate.targets == ["/a", "/b", "/c"]


async def test_a_request_may_take_many_segments_and_a_segment_hold_many_requests() -> None:
    data = b"".join(post(f"/{n}", 10, b"%010d" % n) for n in range(50))
    for size in (7, len(data)):
        client = Client(with_body)
        client.send(*(data[at : at + size] for at in range(0, len(data), size)))
        await waiting.turns(400)
        assert client.got == b"".join(b"[%010d]" % n for n in range(50))


async def test_a_deferred_response_waits_for_the_disk_and_the_next_request_for_it() -> None:
    durable: list[asyncio.Future[None]] = []

    async def serve(request: HttpRequest) -> Answer:
        durable.append(asyncio.get_running_loop().create_future())
        target = request.target.encode()
        return Deferred(durable[-1], lambda failure: Reply(b"503" if failure else target))

    client = Client(serve)
    client.send(get("/a") + get("/b"))
    assert await client.settle() == b""
    assert len(durable) == 1
    durable[0].set_result(None)
    assert await client.settle() == b"[/a]"
    durable[1].set_exception(OSError())
    assert await client.settle() == b"[/a][503]"


async def test_a_head_that_is_remembered_is_that_of_exactly_these_bytes() -> None:
    seen: list[tuple[bool, str, bytes, object]] = []

    async def serve(request: HttpRequest) -> Answer:
        body = request.body.take()
        seen.append((request.known, request.target, body, request.head))
        if not request.known:
            request.remember("meaning")
        return Reply(b"")

    client = Client(serve)
    for sent in (post("/a", 2, b"hi"), post("/a", 2, b"ho"), post("/b", 2, b"hi"), get("/a")):
        client.send(sent)
    assert [each[0] for each in seen] == [False, True, False, False]
    assert seen[1] == (True, "/a", b"ho", "meaning")
    # Inside another message, and where anything follows, the bytes are parsed.
    seen.clear()
    known = post("/a", 2, b"hi")
    for pieces in (
        (post("/c", len(known) + 1, b"x"), known),
        (known + known,),
        (known[:-1], known[-1:]),
        (known,),
    ):
        client.send(*pieces)
        await client.settle()
    assert [(each[0], each[1]) for each in seen] == [
        (False, "/c"), (False, "/a"), (False, "/a"), (False, "/a"), (True, "/a"),
    ]  # fmt: skip


# ----------------------------------------------------------------------------------- flow control


async def test_a_slow_reader_of_a_body_stops_the_reading() -> None:
    gate = asyncio.Event()

    async def serve(request: HttpRequest) -> Answer:
        await gate.wait()
        return await with_body(request)

    client = Client(serve)
    client.send(post("/a", 5000, b"x" * 1000))
    assert client.is_reading()
    client.send(b"x")
    assert not client.is_reading()
    # What was under way when reading stopped is kept.
    client.send(b"x" * 3999 + post("/b", 0))
    gate.set()
    assert await client.settle() == b"[" + b"x" * 5000 + b"][]"
    assert client.is_reading()


async def test_requests_that_wait_stop_the_reading() -> None:
    gate = Gate()
    client = Client(gate)
    long = b"X-A: " + b"a" * 900 + b"\r\n"
    client.send(get("/a"), get("/b"), get("/c", long))
    assert client.is_reading()
    client.send(get("/d", long))
    assert not client.is_reading()
    gate.release("/a", "/b", "/c", "/d")
    assert await client.settle() == b"[/a][/b][/c][/d]"
    assert client.is_reading()


async def test_a_client_that_does_not_read_is_not_served_until_it_does() -> None:
    gate = Gate()
    gate.release("/a", "/b")
    client = Client(gate)
    client.protocol.pause_writing()
    client.send(get("/a") + get("/b"))
    assert gate.targets == []
    client.protocol.resume_writing()
    assert await client.settle() == b"[/a][/b]"


async def test_a_client_that_takes_nothing_for_too_long_is_cut_off() -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    async def serve(request: HttpRequest) -> Answer:
        await gate.wait()
        request.start_response(b"head")
        try:
            await request.drain()
        finally:
            ended.set()
        return ResponseSent(keep_alive=True)

    # expires on purpose
    client = Client(serve, LIMITS._replace(write_seconds=0.01), cancels=False)
    client.send(get("/a"))
    client.protocol.pause_writing()
    gate.set()
    async with asyncio.timeout(waiting.PATIENCE):
        await ended.wait()
    assert client.aborted


async def test_a_client_that_reads_what_was_written_gets_the_rest() -> None:
    gate = asyncio.Event()

    async def serve(request: HttpRequest) -> Answer:
        await gate.wait()
        request.start_response(b"head")
        await request.drain()
        request.send(b"rest")
        return ResponseSent(keep_alive=True)

    client = Client(serve)
    client.send(get("/a"))
    client.protocol.pause_writing()
    gate.set()
    assert await client.settle() == b"head"
    client.protocol.resume_writing()
    assert await client.settle() == b"headrest"


# ---------------------------------------------------------------------------------- the unread rest


async def test_the_rest_of_a_refused_body_is_dropped_and_the_next_request_answered() -> None:
    client = Client(at_once)
    client.send(post("/a", 5000, b"x" * 100))
    assert client.got == b"[/a]"
    client.send(b"x" * 4900 + get("/b"))
    assert await client.settle() == b"[/a][/b]"
    assert client.is_reading()


async def test_the_rest_of_a_refused_body_is_awaited_for_a_limited_time() -> None:
    # expires on purpose
    client = Client(at_once, LIMITS._replace(lingering_seconds=0.01))
    client.send(post("/a", 5000, b"x"))
    await waiting.until_async("it is closed", client.is_closing)
    assert client.got == b"[/a]"


EXPECTS = b"Expect: 100-continue\r\n"


async def test_a_refusal_before_an_expected_body_begins_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    client = Client(at_once, half_closes=True)
    client.send(post("/a", 40, fields=EXPECTS))
    # The client leaves the body out: 40 bytes of its next request would be taken for it.
    client.send(get("/b"))
    assert await client.settle() == b"[/a close]"
    assert client.ended
    assert "was refused before its body" in caplog.text
    client.end()
    assert client.closed
    assert "hung up" not in caplog.text


async def test_a_refusal_after_an_expected_body_began_keeps_the_connection() -> None:
    client = Client(at_once)
    client.send(post("/a", 40, b"x", fields=EXPECTS))
    assert client.got == b"[/a]"
    client.send(b"x" * 39 + get("/b"))
    assert await client.settle() == b"[/a][/b]"
    assert not client.is_closing()


async def test_a_refusal_after_100_keeps_the_connection() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.send_continue()
        return await at_once(request)

    client = Client(serve)
    client.send(post("/a", 4, fields=EXPECTS))
    client.send(b"body")
    assert (await client.settle()).endswith(b"[/a]")
    assert not client.is_closing()


async def test_a_client_of_http_1_0_does_not_wait_for_100() -> None:
    client = Client(at_once)
    kept = EXPECTS + b"Connection: keep-alive\r\n"
    client.send(post("/a", 4, fields=kept).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert client.got == b"[/a]"


async def test_100_is_sent_only_to_a_client_that_waits_for_it() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.send_continue()
        return await with_body(request)

    client = Client(serve)
    client.send(post("/a", 4))
    assert client.got == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"body")
    assert (await client.settle()).endswith(b"[body]")
    client = Client(serve)
    client.send(post("/a", 4, b"bo"), b"dy")
    assert await client.settle() == b"[body]"
