"""The life of a listener."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from policies.ground.addresses import ListenAddress
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.raw_client import ask, get
from tests.support import waiting
from tests.support.loop_clock import LoopClock
from tests.support.ports import free_port
from tests.support.proxy import ProxySetup, listening, sidecar, source
from tests.support.scripted_source import Seen, answer, data_source
from tests.support.waiting import until_async


async def test_open_requests_finish_and_new_ones_are_refused(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with data_source(slow) as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy([source(upstream.port)])
        await proxy.start()
        port = proxy.port("kb")
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        asking = asyncio.get_running_loop().create_task(ask(port, get("/a")))
        await until_async("the source has the request", lambda: len(upstream.seen) == 1)
        closing = asyncio.get_running_loop().create_task(proxy.close(60))
        await waiting.turns()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not closing.done()
        go_on.set()
        answered = await asking
        assert answered.body == b"ok"
        await closing
        idle.close()
        # What it returned is handed over before the spool closes.
        [lineage] = await made.lineage()
        assert lineage["outcome"] == "completed"


async def test_requests_that_take_too_long_are_ended(tmp_path: Path) -> None:
    async def never(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    async with data_source(never) as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy([source(upstream.port)])
        await proxy.start()
        asking = asyncio.get_running_loop().create_task(ask(proxy.port("kb"), get("/a")))
        await until_async("the source has the request", lambda: len(upstream.seen) == 1)
        async with asyncio.timeout(20):
            await proxy.close(0.2)
            assert (await asking).raw == b""
        await until_async("the source has lost the connection", lambda: upstream.lost == 1)


async def test_a_port_that_is_taken_is_an_error_and_closes_cleanly(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = ListenAddress("127.0.0.1", taken.getsockname()[1])
        async with sidecar(tmp_path) as made:
            proxy = made.proxy([source(1, listen=where)])
            with pytest.raises(OSError, match="in use"):
                await proxy.start()
            await proxy.close(1)


async def test_a_star_takes_connections_of_both_ip_versions(tmp_path: Path) -> None:
    listen = ListenAddress("*", free_port())
    async with data_source(answer()) as upstream, sidecar(tmp_path) as made:
        proxy = made.proxy([replace(source(upstream.port), listen=listen)])
        await proxy.start()
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, listen.port)
            writer.write(get("/a"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        await proxy.close(0)
        # One version alone would be a port that some clients find closed, or another service's.
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            with socket.socket(family) as other:
                if family == socket.AF_INET6:
                    other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind((host, listen.port))
                other.listen()
                proxy = made.proxy([replace(source(upstream.port), listen=listen)])
                with pytest.raises(OSError, match="address already in use"):
                    await proxy.start()
                await proxy.close(0)


async def test_a_listener_that_never_started_closes(tmp_path: Path) -> None:
    async with sidecar(tmp_path) as made:
        await made.proxy([source(1)]).close(1)


async def test_a_data_source_that_refuses_connections_is_answered_with_502(tmp_path: Path) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):
            each = socket.socket()
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
            waiting.append(each)
        limits = replace(LIMITS, connect_seconds=0.3)
        async with sidecar(tmp_path) as made, listening(made, source(port), limits) as through:
            async with asyncio.timeout(20):
                assert (await ask(through, get("/a"))).status == 502
        for each in waiting:
            each.close()


async def test_more_requests_than_connections_wait_for_one(tmp_path: Path) -> None:
    busy = most = 0
    all_busy = asyncio.Event()

    async def slow(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        if busy == 3:
            await waiting.turns()  # a fourth would arrive now
            all_busy.set()
        await all_busy.wait()
        busy -= 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    limits = replace(LIMITS, connections=3)
    async with data_source(slow) as upstream, sidecar(tmp_path) as made:
        async with listening(made, source(upstream.port), limits) as port:
            answers = await asyncio.gather(*(ask(port, get("/a")) for _ in range(15)))
        assert [each.status for each in answers] == [200] * 15
        assert most == 3
        assert upstream.connections == 3


async def test_an_idle_connection_to_a_data_source_is_closed_after_a_while(
    tmp_path: Path, clock: LoopClock
) -> None:
    limits = replace(LIMITS, upstream_idle_seconds=600.0)
    async with (
        data_source(answer()) as upstream,
        sidecar(tmp_path) as made,
        listening(made, source(upstream.port), limits) as port,
    ):
        await asyncio.gather(*(ask(port, get("/a")) for _ in range(4)))
        for _ in range(2):  # what the first sweep finds at rest, the second closes
            assert upstream.open > 0
            await clock.skip(400)
        await until_async("the source's connections are closed", lambda: upstream.open == 0)
        assert (await ask(port, get("/a"))).status == 200


@pytest.mark.parametrize("line", ["GET   /a HTTP/1.1", "GET /a   HTTP/1.1", "GET /a RTSP/1.1"])
async def test_a_leniently_parsed_request_line_arrives_in_plain_form(
    setup: ProxySetup, line: str
) -> None:
    """RFC 9112 section 3 lets a server split the request line at any white space. What was read is
    what is decided and written anew."""
    answered = await setup.ask(f"{line}\r\nHost: kb.test\r\n\r\n".encode())
    assert answered.status == 200
    assert [seen.line for seen in setup.upstream.begun] == ["GET /a HTTP/1.1"]
    assert await setup.sidecar.decisions() == [("ALLOW", "analysts-read", "rest://kb/a")]
