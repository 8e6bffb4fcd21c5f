"""How a connection ends: half-closed, broken off, idle, failing, stopped."""

import asyncio
import errno
import logging
from typing import NamedTuple

import pytest

from sidecar.http.headers import ResponseHead
from sidecar.http.messages.body import BodyBrokenOff
from sidecar.http.server.request import (
    Answer,
    Deferred,
    HttpRequest,
    ResponseSent,
    Serve,
)
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

# --------------------------------------------------------------------------------------- lingering

CLOSE = b"Connection: close\r\n"


async def test_data_after_the_last_response_is_discarded() -> None:
    gate = Gate()
    client = Client(gate, half_closes=True)
    client.send(get("/a", CLOSE) + get("/b"))
    gate.release("/a", "/b")
    assert await client.settle() == b"[/a close]"
    client.send(get("/c"), b"x" * 5000)
    assert await client.settle() == b"[/a close]"
    assert gate.targets == ["/a"]
    assert (client.ended, client.closed, client.reading_paused) == (True, False, False)
    client.end()
    assert (client.closed, client.aborted) == (True, False)


async def test_a_connection_that_its_client_leaves_open_is_closed_all_the_same() -> None:
    # expires on purpose
    client = Client(at_once, LIMITS._replace(lingering_seconds=0.01), half_closes=True)
    client.send(get("/a", CLOSE))
    assert client.ended
    await waiting.until_async("it is closed", lambda: client.closed)
    assert not client.aborted


async def test_a_client_that_resets_after_its_response_causes_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Reset(Client):
        def write_eof(self) -> None:
            # As asyncio's transport does for a reset that it has not read yet.
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    client = Reset(at_once, half_closes=True)
    client.send(get("/a", CLOSE))
    assert await client.settle() == b"[/a close]"
    assert client.aborted
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_connection_that_lingers_does_not_hold_up_the_end() -> None:
    client = Client(at_once, half_closes=True)
    client.send(get("/a", CLOSE))
    assert (client.ended, client.closed) == (True, False)
    client.connections.finish()
    assert client.is_closing()


# ------------------------------------------------------------------------------------ half-closing


async def test_a_half_closed_client_gets_all_its_answers_and_the_end() -> None:
    gate = Gate()
    client = Client(gate)
    client.send(get("/a") + get("/b"))
    client.end()
    assert not client.is_closing()
    gate.release("/a")
    assert await client.settle() == b"[/a]"
    gate.release("/b")
    assert await client.settle() == b"[/a][/b close]"
    assert client.is_closing()
    assert not client.aborted


CHUNKED = b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha"
BROKEN_OFF = [b"GET /b HT", post("/b", 10, b"half"), post("/b", 10), CHUNKED]
FILLS_THE_BUFFER = post("/c", LIMITS.buffer_bytes * 3, b"x" * LIMITS.buffer_bytes * 2)


@pytest.mark.parametrize("broken_off", [*BROKEN_OFF, FILLS_THE_BUFFER])
async def test_a_broken_off_request_does_not_prevent_answers_to_earlier_ones(
    broken_off: bytes,
) -> None:
    gate = Gate()
    client = Client(gate)
    client.send(get("/a") + post("/also", 3, b"all") + broken_off)
    client.end()
    assert not client.is_closing()
    gate.release("/a")
    assert await client.settle() == b"[/a]"
    gate.release("/also")
    assert (await client.settle()).replace(b" close", b"") == b"[/a][/also]"
    assert client.is_closing()
    assert not client.aborted
    assert gate.cancelled == gate.targets[2:]


async def test_a_request_that_is_broken_off_behind_others_may_still_be_refused() -> None:
    """As it is when nothing precedes it: the same bytes have the same answers."""
    gate = Gate()

    async def serve(request: HttpRequest) -> Answer:
        return await gate(request) if request.target == "/a" else Reply(b"no")

    client = Client(serve)
    client.send(get("/a") + post("/b", 10, b"half"))
    client.end()
    gate.release("/a")
    assert await client.settle() == b"[/a][no close]"
    assert client.is_closing()


async def test_a_half_closed_client_ends_a_body_that_waits_for_more() -> None:
    gate = Gate()

    async def serve(request: HttpRequest) -> Answer:
        answer = await gate(request)
        await with_body(request)
        return answer

    client = Client(serve)
    # More than is parsed at once, so the end of the second body is not read yet.
    client.send(get("/a") + post("/b", 200_000, b"x" * 200_000))
    client.end()
    gate.release("/a")
    assert await client.settle() == b"[/a]"
    gate.release("/b")
    assert await client.settle() == b"[/a][/b close]"
    assert client.is_closing()


@pytest.mark.parametrize("sent", [b"", get("/a"), get("/a") + b"GET /b HT"])
async def test_a_half_closed_client_that_is_owed_nothing_is_closed(sent: bytes) -> None:
    client = Client(at_once)
    client.send(sent)
    client.end()
    assert client.is_closing()
    assert await client.settle() == (b"[/a]" if sent else b"")


async def test_a_body_that_ends_with_the_connection_is_broken_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    failures: list[BaseException | None] = []

    async def serve(request: HttpRequest) -> Answer:
        try:
            return await with_body(request)
        finally:
            failures.append(request.body.failure)

    client = Client(serve, cancels=False)
    client.send(post("/a", 10, b"half"))
    client.end()
    assert await client.settle() == b""
    assert client.is_closing()
    assert [type(each) for each in failures] == [BodyBrokenOff]
    assert caplog.text.count("hung up in the middle of its request body") == 1


async def test_a_half_closed_client_is_awaited_for_a_limited_time() -> None:
    gate = Gate()
    # expires on purpose
    client = Client(gate, LIMITS._replace(half_close_seconds=0.01))
    client.send(get("/a"))
    client.end()
    await waiting.until_async("it counts as gone", lambda: client.aborted)
    await client.settle()
    assert gate.cancelled == ["/a"]


GONE = LIMITS._replace(half_close_seconds=0.0)


@pytest.mark.parametrize("behind", [b"", get("/b")])
async def test_a_half_closed_client_counts_as_gone_where_it_is_not_awaited(behind: bytes) -> None:
    gate = Gate()
    client = Client(gate, GONE)
    client.send(get("/a") + behind)
    client.end()
    await client.settle()
    assert client.aborted
    assert (gate.targets, gate.cancelled) == (["/a"], ["/a"])


async def test_a_response_that_has_begun_reaches_a_half_closed_client_and_no_other_does() -> None:
    gate = asyncio.Event()
    served: list[str] = []

    async def serve(request: HttpRequest) -> Answer:
        served.append(request.target)
        request.start_response(b"[begun")
        await gate.wait()
        request.send(b" whole]")
        return ResponseSent(keep_alive=True)

    client = Client(serve, GONE)
    client.send(get("/a") + get("/b"))
    client.end()
    gate.set()
    assert await client.settle() == b"[begun whole]"
    assert client.is_closing()
    assert not client.aborted
    assert served == ["/a"]


async def test_a_response_without_an_end_ends_with_the_client_s_side() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.end_on_client_close()
        request.start_response(b"event")
        await waiting.never()
        raise AssertionError

    client = Client(serve)
    client.send(get("/a"))
    client.end()
    assert client.is_closing()


# --------------------------------------------------------------------------------- what goes wrong


async def test_a_malformed_request_is_answered_and_nothing_after_it() -> None:
    client = Client(at_once)
    client.send(get("/a") + b"nonsense\r\n\r\n" + get("/b"))
    assert await client.settle() == b"[/a][fault close]"
    assert client.is_closing()


async def test_a_body_whose_framing_breaks_ends_the_connection() -> None:
    client = Client(at_once)
    client.send(b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + get("/b"))
    assert await client.settle() == b"[/a close]"
    assert client.is_closing()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_fault_of_ours_is_logged_and_answered(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(_request: HttpRequest) -> Answer:
        if waits:
            await asyncio.sleep(0)
        raise ZeroDivisionError("internal words")

    client = Client(serve)
    client.send(get("/a") + get("/b"))
    assert await client.settle() == b"[500 close]"
    assert client.is_closing()
    assert "internal words" in caplog.text


async def _unrenderable(_request: HttpRequest) -> Answer:
    def complete(_failure: BaseException | None) -> Reply:
        raise ConnectionError("internal words")

    durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    durable.set_result(None)
    return Deferred(durable, complete)


async def _unrecorded(_request: HttpRequest) -> Answer:
    durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    durable.cancel("internal words")
    # Says "allowed" whatever became of the record.
    return Deferred(durable, lambda _failure: Reply(b"allowed"))


@pytest.mark.parametrize("serve", [_unrenderable, _unrecorded])
async def test_a_deferred_response_that_can_not_be_made_is_a_fault(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(serve)
    client.send(get("/a") + get("/b"))
    assert await client.settle() == b"[500 close]"
    assert client.is_closing()
    assert "internal words" in caplog.text


class _Unencodable(NamedTuple):
    """A response that can't be written."""

    close: bool = False

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        raise ConnectionError("internal words")

    def split(self) -> tuple[ResponseHead, bytes]:
        raise ConnectionError("internal words")

    def failure(self) -> None:
        return None


async def _unencodable(_request: HttpRequest) -> Answer:
    return _Unencodable()


async def _unencodable_later(_request: HttpRequest) -> Answer:
    durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(durable.set_result, None)
    return Deferred(durable, lambda _failure: _Unencodable())


async def _failing(_request: HttpRequest) -> Answer:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "serve", [_unencodable, _unencodable_later, _unrenderable, _unrecorded, _failing]
)
async def test_a_response_that_can_not_be_made_at_all_breaks_the_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is the service's own that fails, or the one that stands in for it."""
    served: list[str] = []

    async def noting(request: HttpRequest) -> Answer:
        served.append(request.target)
        return await serve(request)

    def failing(_request: HttpRequest) -> Reply:
        raise ConnectionError("internal words")

    client = Client(noting, failed=failing)
    client.send(get("/a") + get("/b"))
    assert await client.settle() == b""
    assert client.aborted
    assert client.connections.open == set()
    assert served == ["/a"]
    assert "internal words" in caplog.text


async def test_a_fault_after_the_response_began_ends_the_connection() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.start_response(b"[half")
        raise ZeroDivisionError

    client = Client(serve)
    client.send(get("/a") + get("/b"))
    assert await client.settle() == b"[half"
    # Not closed: the end of the connection may be taken for that of the body.
    assert client.aborted


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_client_that_leaves_cancels_its_request_if_set_so(
    cancels: bool,
) -> None:
    gate = Gate()
    client = Client(gate, cancels=cancels)
    client.send(get("/a") + get("/b"))
    # In the turn in which the request arrived: its task has not made a step yet.
    client.closed = True
    client.protocol.connection_lost(None)
    gate.release("/a")
    await client.settle()
    assert gate.cancelled == (["/a"] if cancels else [])
    assert gate.targets == ["/a"]
    assert client.got == b""
    assert client.connections.open == set()


async def test_a_request_that_is_cancelled_from_within_breaks_its_connection() -> None:
    """As by a future that is shared with another task and cancelled there."""
    shared = asyncio.get_running_loop().create_future()
    shared.cancel()

    async def serve(_request: HttpRequest) -> Answer:
        await shared
        raise AssertionError

    client = Client(serve)
    client.send(get("/a"))
    await client.settle()
    assert client.aborted


# ------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("sent", [b"", b"GET /a HT", get("/a"), get("/a") + b"\r\n"])
async def test_a_connection_that_waits_too_long_for_a_head_is_closed(sent: bytes) -> None:
    # expires on purpose
    client = Client(at_once, LIMITS._replace(idle_seconds=0.01))
    client.send(sent)
    await waiting.until_async("it is closed", client.is_closing)
    assert not client.aborted


async def test_an_open_request_does_not_count_as_idle() -> None:
    gate = Gate()
    # expires on purpose
    client = Client(gate, LIMITS._replace(idle_seconds=0.01))
    client.send(get("/a"))
    # Time itself passes: three idle times.
    await asyncio.sleep(0.03)
    assert not client.is_closing()
    gate.release("/a")
    assert await client.settle() == b"[/a]"


async def test_a_client_that_never_takes_the_last_response_is_cut_off() -> None:
    # expires on purpose
    client = Client(at_once, LIMITS._replace(idle_seconds=0.01))
    client.send(get("/a"))
    client.protocol.pause_writing()
    await waiting.until_async("it is cut off", lambda: client.aborted)


async def test_a_stop_lets_open_requests_finish() -> None:
    gate = Gate()
    client = Client(gate)
    client.send(get("/a") + get("/b"))
    closing = asyncio.create_task(client.connections.close(60))
    await waiting.turns()
    assert not closing.done()
    gate.release("/a")
    await closing
    assert client.got == b"[/a close]"
    assert gate.targets == ["/a"]


async def test_a_stop_ends_idle_connections_at_once_and_others_after_a_while() -> None:
    idle = Client(at_once)
    await asyncio.wait_for(idle.connections.close(60), 20)
    assert idle.is_closing()
    gate = Gate()
    busy = Client(gate)
    busy.send(get("/a"))
    await asyncio.wait_for(busy.connections.close(0.01), 20)
    assert (busy.aborted, gate.cancelled) == (True, ["/a"])


async def test_closing_twice_is_the_same_as_once() -> None:
    client = Client(at_once)
    first, second = client.protocol.finish(), client.protocol.finish()
    async with asyncio.timeout(20):
        await first
        await second


async def test_bytes_are_counted_in_both_directions() -> None:
    client = Client(at_once)
    client.send(get("/a"))
    flow = client.connections.flow
    assert (flow.received, flow.sent) == (len(get("/a")), len(client.got))
