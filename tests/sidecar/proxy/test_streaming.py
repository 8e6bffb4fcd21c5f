"""Bodies that take their time, and either side leaving before the end."""

import asyncio
import hashlib
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.raw_client import Answered, ask, get, leave
from tests.support import waiting
from tests.support.loop_clock import LoopClock
from tests.support.proxy import ProxySetup, policy, proxy_setup
from tests.support.scripted_source import Seen
from tests.support.waiting import until_async

HOST = "Host: kb.test"
GET = f"GET /a HTTP/1.1\r\n{HOST}\r\n\r\n".encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_each_event_of_a_stream_passes_at_once(setup: ProxySetup) -> None:
    """The head before the first event, and each event before the next: the data source writes none
    until the agent has the one before."""
    turn = asyncio.Semaphore(0)

    async def events(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            await turn.acquire()
            writer.write(b"9\r\ndata: %d\n\n\r\n" % number)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    setup.upstream.script = events
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    async with asyncio.timeout(waiting.PATIENCE):
        await reader.readuntil(b"\r\n\r\n")
        for number in range(3):
            turn.release()
            await reader.readuntil(b"data: %d\n\n" % number)
    writer.close()


async def test_an_upload_and_its_answer_stream_at_the_same_time(setup: ProxySetup) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        for _ in range(3):
            size = int(await reader.readuntil(b"\r\n"), 16)
            part = await reader.readexactly(size + 2)
            writer.write(b"%x\r\n" % size + part)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", stand_port := 0)
    assert stand_port == 0
    port = server.sockets[0].getsockname()[1]
    from tests.support.proxy import listening, source

    async with listening(setup.sidecar, source(port, writes="allow")) as through:
        reader, writer = await asyncio.open_connection("127.0.0.1", through)
        writer.write(f"POST /a HTTP/1.1\r\n{HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        for part in (b"one", b"two", b"six"):
            writer.write(b"3\r\n%b\r\n" % part)
            async with asyncio.timeout(20):
                await reader.readuntil(b"3\r\n%b\r\n" % part)
        writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(20):
            await reader.readuntil(b"0\r\n\r\n")
        writer.close()
    server.close()


def _broken(seen: Seen) -> bool:
    return not seen.whole


def resident() -> int:
    return psutil.Process().memory_info().rss


async def test_a_slow_reader_does_not_fill_memory(setup: ProxySetup) -> None:
    total = 64 * 1024 * 1024
    sent = 0

    async def flood(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n".encode())
        block = bytes(65536)
        for _ in range(total // len(block)):
            writer.write(block)
            await writer.drain()
            sent += len(block)

    setup.upstream.script = flood
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port, limit=4096)
    before = resident()
    writer.write(GET)
    await reader.readuntil(b"\r\n\r\n")
    assert await waiting.still(lambda: sent) < 24 * 1024 * 1024, "it is not held back"
    assert resident() - before < 16 * 1024 * 1024
    got = 0
    while got < total:
        got += len(await reader.read(1 << 20))
    writer.close()
    assert resident() - before < 24 * 1024 * 1024


async def test_a_slow_data_source_holds_back_an_upload(setup: ProxySetup) -> None:
    go_on = asyncio.Event()

    async def lazy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await go_on.wait()
        got = 0
        while got < total:
            got += len(await reader.read(1 << 20))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    from tests.support.proxy import listening, source

    total = 48 * 1024 * 1024
    server = await asyncio.start_server(lazy, "127.0.0.1", 0, limit=65536)
    port = server.sockets[0].getsockname()[1]
    async with listening(setup.sidecar, source(port, writes="allow")) as through:
        reader, writer = await asyncio.open_connection("127.0.0.1", through)
        writer.write(f"PUT /a HTTP/1.1\r\n{HOST}\r\nContent-Length: {total}\r\n\r\n".encode())
        sent = 0
        block = bytes(65536)

        async def upload() -> None:
            nonlocal sent
            while sent < total:
                writer.write(block)
                await writer.drain()
                sent += len(block)

        task = asyncio.get_running_loop().create_task(upload())
        assert await waiting.still(lambda: sent) < 24 * 1024 * 1024
        go_on.set()
        async with asyncio.timeout(20):
            await task
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        writer.close()
    server.close()


BREAKS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", b"abc"),
    "chunked": (CHUNKED + b"3\r\nabc\r\n", b"3\r\nabc\r\n"),
    "chunk": (CHUNKED + b"5\r\nabc", b"3\r\nabc\r\n"),
}


@pytest.mark.parametrize("how", BREAKS)
async def test_the_agent_can_recognise_a_broken_off_answer(setup: ProxySetup, how: str) -> None:
    data, body = BREAKS[how]
    heard = asyncio.Event()

    async def broken(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await heard.wait()
        writer.close()

    setup.upstream.script = broken
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    begun = await reader.readuntil(b"abc")
    heard.set()
    answered = Answered(begun + await reader.read())
    writer.close()
    assert answered.status == 200
    assert answered.body == body
    [lineage] = await setup.sidecar.lineage()
    assert lineage["outcome"] == "truncated"
    assert lineage["detail"]["bytes"] == 3
    assert lineage["detail"]["sha256"] == hashlib.sha256(b"abc").hexdigest()


async def test_an_agent_of_http_1_0_gets_a_reset_if_its_answer_breaks_off(
    setup: ProxySetup,
) -> None:
    async def broken(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await writer.drain()
        await waiting.turns()
        writer.close()

    setup.upstream.script = broken
    # There the end of the connection is the end of the body: an orderly one would say "complete".
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(b"GET /a HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_an_agent_that_leaves_before_the_head_cancels_the_request(setup: ProxySetup) -> None:
    async def never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    setup.upstream.script = never
    _, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    await until_async("the source has the request", lambda: len(setup.upstream.seen) == 1)
    leave(writer)
    await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
    [lineage] = await setup.sidecar.lineage()
    assert (lineage["outcome"], lineage["detail"]["bytes"]) == ("truncated", 0)


async def test_an_agent_that_leaves_in_the_middle_cancels_the_request(setup: ProxySetup) -> None:
    async def endless(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while True:
            writer.write(b"3\r\nabc\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)  # a trickle, which fills no buffer

    setup.upstream.script = endless
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    await reader.readuntil(b"abc")
    # A close in good order: nothing tells it from a half-close until something is written.
    writer.close()
    await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
    [lineage] = await setup.sidecar.lineage()
    assert lineage["outcome"] == "truncated"
    assert lineage["detail"]["bytes"] >= 3


async def test_an_agent_that_half_closed_gets_its_answer(setup: ProxySetup) -> None:
    async def later(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await waiting.turns()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    setup.upstream.script = later
    answered = await ask(setup.port, GET)
    assert answered.body == b"ok"
    answered = await ask(setup.port, GET + GET)
    assert answered.raw.count(b"HTTP/1.1 200") == 2


async def test_a_half_closed_agent_is_awaited_for_a_limited_time(
    tmp_path: Path, clock: LoopClock
) -> None:
    async def never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    limits = replace(LIMITS, half_close_seconds=60.0)
    async with proxy_setup(tmp_path, policy(), limits=limits) as made:
        made.upstream.script = never
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(GET)
        writer.write_eof()
        await until_async("the source has the request", lambda: bool(made.upstream.begun))
        await clock.skip(70)
        assert await reader.read() == b""
        await until_async("the source has lost the connection", lambda: made.upstream.lost == 1)
        [lineage] = await made.sidecar.lineage()
        assert lineage["outcome"] == "truncated"


async def test_an_upload_that_breaks_off_never_looks_whole(setup: ProxySetup) -> None:
    for head, part in (
        ("Content-Length: 10", b"abc"),
        ("Transfer-Encoding: chunked", b"3\r\nabc\r\n"),
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        writer.write(f"POST /a HTTP/1.1\r\n{HOST}\r\n{head}\r\n\r\n".encode() + part)
        await until_async("the source has the request", lambda: bool(setup.upstream.begun))
        await waiting.turns()
        leave(writer)
        [seen] = setup.upstream.begun
        await until_async("the connection is broken", partial(_broken, seen))
        assert setup.upstream.seen == []
        setup.upstream.begun.clear()


async def test_a_body_whose_framing_breaks_never_looks_whole(setup: ProxySetup) -> None:
    head = f"POST /a HTTP/1.1\r\n{HOST}\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(head.encode() + b"3\r\nabc\r\n")
    await until_async("the source has the request", lambda: bool(setup.upstream.begun))
    writer.write(b"zz\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(20):
        raw = await reader.read()
    writer.close()
    assert raw.startswith(b"HTTP/1.1 400 ")
    assert raw.count(b"HTTP/1.1 ") == 1
    await until_async(
        "the source has the start of the body", lambda: not setup.upstream.begun[0].whole
    )
    assert setup.upstream.seen == []


async def test_a_body_that_is_broken_from_its_beginning_is_refused_with_400(
    setup: ProxySetup,
) -> None:
    """What came before it on the connection is answered all the same."""
    broken = f"POST /a HTTP/1.1\r\n{HOST}\r\nTransfer-Encoding: chunked\r\n\r\n2\r".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(get("/first") + broken)
    await waiting.turns()
    writer.write(b"\n\nhi\r\n0\r\n\r\n")
    writer.write_eof()
    async with asyncio.timeout(20):
        raw = await reader.read()
    writer.close()
    assert [part[:3] for part in raw.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]
    assert setup.upstream.targets == ["/first"]


async def test_an_answer_before_the_end_of_the_upload_is_relayed(setup: ProxySetup) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        await waiting.turns()
        writer.close()

    from tests.support.proxy import listening, source

    server = await asyncio.start_server(early, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with listening(setup.sidecar, source(port, writes="allow")) as through:
        reader, writer = await asyncio.open_connection("127.0.0.1", through)
        writer.write(f"PUT /a HTTP/1.1\r\n{HOST}\r\nContent-Length: 1000000\r\n\r\n".encode())
        writer.write(bytes(1000))
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        leave(writer)
    server.close()


async def test_an_idle_connection_uses_little_memory(setup: ProxySetup) -> None:
    async def opened(count: int) -> list[asyncio.StreamWriter]:
        made = [await asyncio.open_connection("127.0.0.1", setup.port) for _ in range(count)]
        await waiting.turns(count)
        return [writer for _, writer in made]

    writers = await opened(5)  # what the first ones make stays
    tracemalloc.start()
    try:
        writers += await opened(40)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The client's half is counted along.
    assert held / 40 < 40 * 1024
    for writer in writers:
        writer.close()


@pytest.mark.deep(stands_in="test_an_idle_connection_uses_little_memory")
async def test_idle_connections_use_little_memory_each(setup: ProxySetup) -> None:
    before = resident()
    writers = []
    for _ in range(300):
        _, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        writers.append(writer)
    await waiting.turns(300)
    # The clients live in this process too: their half is counted along.
    assert (resident() - before) / 300 < 80 * 1024
    for writer in writers:
        writer.close()


async def test_a_half_close_in_the_middle_of_an_answer_cuts_nothing_off(tmp_path: Path) -> None:
    async def slowly(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for _ in range(6):
            await asyncio.sleep(0.1)  # together longer than a half-closed agent is waited for
            writer.write(b"3\r\nabc\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    limits = replace(LIMITS, half_close_seconds=0.2)
    async with proxy_setup(tmp_path, policy(), limits=limits) as made:
        made.upstream.script = slowly
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(GET)
        await reader.readuntil(b"abc\r\n")
        writer.write_eof()
        async with asyncio.timeout(20):
            rest = await reader.read()
        assert rest == b"3\r\nabc\r\n" * 5 + b"0\r\n\r\n"
        writer.close()


async def test_an_agent_that_closes_a_stream_of_events_ends_it(setup: ProxySetup) -> None:
    async def events(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        await writer.drain()
        await waiting.never()

    setup.upstream.script = events
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(GET)
    await reader.readuntil(b"data: 1\n\n")
    writer.close()
    await until_async("the source has lost the connection", lambda: setup.upstream.lost == 1)
    [lineage] = await setup.sidecar.lineage()
    assert lineage["outcome"] == "truncated"
