"""HTTP/2 connections whose client does anything at any time: frames in any order, cut and changed,
while responses are under way and the connection may end. Nothing fails, nothing is left, and every
request that was served ends."""

import asyncio
import logging
from contextlib import suppress
from random import Random

import pytest

from sidecar.http.headers import ResponseHead
from sidecar.http.server.request import Answer, Deferred, HttpRequest, ResponseSent
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import GET, POST, data, headers, reset, update
from tests.sidecar.http.server.served import Reply
from tests.sidecar.http.server.served_http2 import Served
from tests.support import properties
from tests.support.loop_clock import moving_clock

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])


class Anything:
    """A service that does anything that a service may do. `under_way` counts its requests."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.under_way = 0
        self.left: list[asyncio.Future[None]] = []

    async def __call__(self, request: HttpRequest) -> Answer:
        self.under_way += 1
        try:
            return await self._answer(request)
        finally:
            self.under_way -= 1

    async def _answer(self, request: HttpRequest) -> Answer:
        chance = self.chance
        if request.fault:
            return Reply(b"fault")
        request.watch_client(lambda: None)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            request.send_continue()
        if chance.random() < 0.5:
            with suppress(TimeoutError):
                while await request.body.next(50):
                    if chance.random() < 0.1:
                        break
        kind = chance.randrange(6)
        if kind == 0:
            return Reply(bytes(chance.choice((0, 1, 70_000))))
        if kind == 1:
            durable = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(chance.random() * 3, _done, durable)
            return Deferred(durable, lambda _error: Reply(b"deferred"))
        if kind == 2:
            return ResponseSent(keep_alive=False)
        head = ResponseHead(chance.choice((200, 204, 304)), b"", b"A: b\r\n", None)
        if kind == 3:
            request.respond(head, bytes(chance.choice((0, 1, 400_000))), b"X-Sum: 1\r\n")
            if request.congested:
                await request.drain()
            return ResponseSent(keep_alive=True, status=200)
        request.begin(head, empty=chance.random() < 0.2)
        if chance.random() < 0.2:
            request.end_on_client_close()
        for _ in range(chance.randrange(40)):
            request.send(bytes(chance.choice((0, 1, 16_384))))
            if request.congested:
                await request.drain()
        if chance.random() < 0.8:
            request.end(chance.choice((b"", b"X-Sum: 1\r\n")))
        return ResponseSent(keep_alive=True, status=200)


def _done(durable: "asyncio.Future[None]") -> None:
    if not durable.done():
        durable.set_result(None)


class Frames:
    """Draws frames, mostly such as a client may send."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._last = -1
        self._sending: list[int] = []
        """The streams whose request has not ended."""

    def draw(self) -> bytes:
        chance = self._chance
        kind = chance.randrange(40)
        if kind < 10 or not self._sending:
            self._last += 2
            end = chance.random() < 0.4
            if not end:
                self._sending.append(self._last)
            return headers(self._last, chance.choice((GET, POST)), end=end)
        sending = chance.choice(self._sending)
        any_stream = max(1, self._last - 2 * chance.randrange(6))
        if kind < 20:
            size, pad = chance.choice((0, 1, 1_000, 16_000)), chance.choice((None, None, 0, 200))
            return data(sending, bytes(size), end=self._ended(sending, 0.3), pad=pad)
        if kind < 24:
            self._ended(any_stream, 1)
            return reset(any_stream, chance.choice((0, 1, 7, 8, 11)))
        if kind < 32:
            return update(chance.choice((0, any_stream)), chance.choice((1, 1_000, 100_000)))
        if kind < 34:
            self._ended(sending, 1)
            return headers(sending, [(b"x-sum", b"1")])
        if kind < 39:
            window = chance.choice((0, 1, 65_535, 1 << 20))
            odd = frames.frame(frames.UNKNOWN, any_stream, bytes(chance.randrange(20)))
            return (
                frames.ping(chance.choice((0, frames.ACK))),
                frames.settings({frames.INITIAL_WINDOW: window}),
                frames.frame(frames.PRIORITY, any_stream, bytes(4) + b"\x10"),
                frames.goaway() if chance.random() < 0.2 else odd,
                odd if chance.random() < 0.8 else data(any_stream, b"x"),
            )[kind - 34]
        if chance.random() < 0.8:
            return b""
        flags, size = chance.randrange(256), chance.randrange(20)
        return frames.frame(chance.randrange(10), any_stream, chance.randbytes(size), flags)

    def _ended(self, stream: int, part: float) -> bool:
        """Draw whether the request of a stream ends."""
        ends = self._chance.random() < part
        if ends and stream in self._sending:
            self._sending.remove(stream)
        return ends


async def _connection(chance: Random) -> None:
    service, drawn = Anything(chance), Frames(chance)
    tasks = asyncio.all_tasks()
    with moving_clock() as clock:
        client = Served(service, cancels=chance.random() < 0.7)
        protocol = client.wire.protocol
        for _ in range(chance.randrange(1, 60)):
            sent = b"".join(drawn.draw() for _ in range(chance.randrange(1, 6)))
            if sent and chance.random() < 0.01:
                at = chance.randrange(len(sent))
                sent = sent[:at] + bytes((chance.randrange(256),)) + sent[at + 1 :]
            cut = chance.randrange(len(sent) + 1)
            client.wire.send(sent[:cut], sent[cut:])
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            what = chance.randrange(60)
            if client.wire.closed:
                break
            if what == 0:
                await clock.skip(chance.choice((2, 30)))
            elif what == 1:
                protocol.finish()
            elif what == 2:
                client.wire.end()
            elif what in (3, 4) and not protocol.congested:
                protocol.pause_writing()
            elif what > 50 and protocol.congested:
                protocol.resume_writing()
        if chance.random() < 0.3 and not client.wire.closed:
            await protocol.cut()
        # Long enough for its body, its response, its idle time, and its end.
        for seconds in (5, 61) * 6:
            await clock.skip(seconds)
        assert client.wire.closed
        assert not client.wire.connections.open
        assert not service.under_way
        assert not client.wire.connections.service.budget.head_bytes
        assert asyncio.all_tasks() == tasks


@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_frames_are_passed_on_whole"
)
async def test_whatever_a_client_does_its_connection_ends_and_leaves_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    chance = properties.chance("http2")
    for _ in range(properties.few(20)):
        seed = chance.randrange(1 << 32)
        try:
            await _connection(Random(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        assert not failed, f"seed {seed}"
        assert not caplog.records, f"seed {seed}"
