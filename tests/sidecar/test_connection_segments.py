"""On the sidecar's own port too, a body is read and every request answered however they are cut
into segments."""

import asyncio
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.http.request_body import BODY_BUDGET_BYTES, MAX_BODY
from tests.sidecar.own_loop import RunnerAndSidecar, sidecar_with_runner
from tests.sidecar.proxy.raw_client import leave
from tests.sidecar.proxy.segmented_agent import Agent, answers, chunks, cut
from tests.sidecar.wire import GOOD, connect, head, request, with_key
from tests.support.fake_control_api import fake_control_api
from tests.support.properties import examples
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

WHOLE = 1 << 24


@pytest.fixture(scope="module")
def runner_and_sidecar() -> Iterator[RunnerAndSidecar]:
    with sidecar_with_runner() as started:
        yield started


def message(size: int, chunk: int = 0) -> bytes:
    """A request whose body has `size` bytes at least, in chunks of `chunk`, for 0 with a length."""
    body = GOOD + b" " * (size - len(GOOD))
    if chunk:
        return head(b"Transfer-Encoding: chunked\r\n" + with_key()) + chunks(body, chunk)
    return head(b"Content-Length: %d\r\n" % len(body) + with_key()) + body


async def sent(
    running: RunningSidecar, messages: list[bytes], sizes: Iterator[int], turns: int = 0
) -> None:
    agent = Agent(running.ports[0])
    async with asyncio.timeout(20):
        await agent.send(cut(b"".join(messages), sizes), turns)
        received = await agent.received_once(lambda read: len(answers(read)) >= len(messages))
    told = answers(received)
    assert [status for status, _ in told] == [200] * len(messages)
    assert {orjson.loads(body)["decision"] for _, body in told} == {"ALLOW"}
    agent.close()


@pytest.mark.parametrize("segment", [1460, 65_536, WHOLE])
@pytest.mark.parametrize("chunk", [0, 1000])
@pytest.mark.parametrize("size", [300_000, 700_000, MAX_BODY])
def test_a_large_body_is_read(
    runner_and_sidecar: RunnerAndSidecar, size: int, chunk: int, segment: int
) -> None:
    runner, served = runner_and_sidecar
    runner.run(sent(served, [message(size, chunk)], itertools.repeat(segment)))


@pytest.mark.parametrize("count", [32, 33, 50, 200])
def test_any_number_of_requests_in_one_write_is_answered(
    runner_and_sidecar: RunnerAndSidecar, count: int
) -> None:
    runner, served = runner_and_sidecar
    runner.run(sent(served, [message(0)] * count, itertools.repeat(WHOLE)))


def test_requests_after_a_late_body_are_answered(
    runner_and_sidecar: RunnerAndSidecar,
) -> None:
    runner, served = runner_and_sidecar
    late = message(1000)
    segments = itertools.chain([len(late) - 500], itertools.repeat(WHOLE))
    runner.run(sent(served, [late, *[message(0)] * 60], segments, 20))


@pytest.mark.deep(stands_in="test_a_large_body_is_read")
@given(
    messages=st.lists(
        st.builds(
            message,
            st.one_of(st.integers(0, 2000), st.integers(0, 400_000), st.just(MAX_BODY)),
            st.sampled_from([0, 0, 100, 20_000]),
        ),
        min_size=1,
        max_size=5,
    ),
    copies=st.integers(1, 20),
    segments=st.lists(st.integers(1, 300_000), min_size=1, max_size=6),
    turns=st.integers(0, 3),
)
@examples(30)
def test_every_segmentation_has_the_same_result(
    runner_and_sidecar: RunnerAndSidecar,
    messages: list[bytes],
    copies: int,
    segments: list[int],
    turns: int,
) -> None:
    runner, served = runner_and_sidecar
    total = sum(map(len, messages))
    copies = min(copies, max(1, 4 * MAX_BODY // total))
    sizes = [max(size, total * copies // 3000) for size in segments]
    runner.run(sent(served, messages * copies, itertools.cycle(sizes), turns))


def test_a_body_beyond_the_budget_is_refused(runner_and_sidecar: RunnerAndSidecar) -> None:
    runner, served = runner_and_sidecar
    bodies = served.parts.bodies

    async def crowded() -> bytes:
        with bodies.lease() as lease:
            lease.grow(BODY_BUDGET_BYTES - 1000)
            agent = Agent(served.ports[0])
            await agent.send(cut(message(300_000), itertools.repeat(65_536)), 2)
            received = await agent.received_once(lambda read: bool(answers(read)))
            agent.close()
            return received

    received = runner.run(crowded())
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in received
    assert bodies.held == 0
    runner.run(sent(served, [message(300_000)], itertools.repeat(65_536)))


@pytest.mark.parametrize("resets", [False, True])
async def test_a_client_that_hangs_up_in_mid_body_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, resets: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            caplog.clear()
            reader, writer = await connect(running)
            fields = b"X-Request-ID: mine\r\nExpect: 100-continue\r\nContent-Length: 100\r\n"
            writer.write(head(fields + with_key()))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"half")
            leave(writer) if resets else writer.close()
            await until_async("it is told", lambda: "hung up" in caplog.text)
            assert (await running.call("GET", "/health")).status == 200
            assert await running.records() == []
    lines = [each for each in caplog.records if each.name == "sidecar.api.dispatch"]
    assert [each.getMessage() for each in lines] == [
        "request mine: the client hung up in the middle of its body"
    ]
    assert (lines[0].levelno, lines[0].exc_info) == (logging.INFO, None)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_an_offer_to_upgrade_is_ignored(tmp_path: Path) -> None:
    """And nothing behind it is read: it may belong to the other protocol (RFC 9931)."""
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
            for behind in (b"", request(with_key(), GOOD)):
                reader, writer = await connect(running)
                writer.write(request(offer + with_key(), GOOD) + behind)
                async with asyncio.timeout(20):
                    everything = await reader.read()
                assert everything.startswith(b"HTTP/1.1 200 ")
                assert everything.count(b"HTTP/1.1 ") == 1
                assert b'"decision":"ALLOW"' in everything
                writer.close()
            assert len(await running.records()) == 2
