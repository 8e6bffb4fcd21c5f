"""The ways in of a sidecar that runs as a process: what they reach, and what they never do."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.sidecar.proxy.raw_client import Answered, ask
from tests.support.fake_control_api import fake_control_api
from tests.support.ports import free_port
from tests.support.scripted_source import Seen, answer, data_source
from tests.support.sidecar_process import SidecarProcess, sidecar_process
from tests.support.waiting import until_async


async def through(proxy: int, target: str) -> Answered:
    host = target.partition("://")[2].partition("/")[0]
    return await ask(proxy, f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


# `proxy/RULES.md`, B26: an admin port is not to be had by way of the proxy, whatever it is called.
@pytest.mark.parametrize("form", ["absolute", "connect"])
async def test_no_port_of_the_sidecar_is_reached_through_the_sidecar(
    tmp_path: Path, form: str
) -> None:
    proxy, metrics, reverse, loop, stop = (free_port() for _ in range(5))
    common = {"kind": "rest", "sensitivity": "low", "writes": "allow"}
    async with data_source() as upstream, fake_control_api() as control:
        sources = [
            {"alias": "kb", "upstream": f"http://127.0.0.1:{upstream.port}",
             "listen": f"127.0.0.1:{reverse}", **common},
            # A source that is one of our own ports: the configuration is no way there either.
            {"alias": "loop", "upstream": f"http://127.0.0.1:{metrics}",
             "listen": f"127.0.0.1:{loop}", **common},
        ]  # fmt: skip
        settings = {
            "forward_proxy": f"127.0.0.1:{proxy}", "metrics_listen": f"127.0.0.1:{metrics}",
            "sources": sources, "quit_listen": f"127.0.0.1:{stop}", "half_close": "wait",
        }  # fmt: skip
        async with sidecar_process(tmp_path, control, **settings) as sidecar:
            control.create_tenant()
            await sidecar.start()
            for port in (sidecar.port, proxy, reverse, loop, stop):
                for host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"):
                    where = f"{host}:{port}"
                    if form == "absolute":
                        answered = await through(proxy, f"http://{where}/metrics")
                    else:
                        connect = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n"
                        answered = await ask(proxy, connect.encode())
                    assert answered.status == 403, where
                    assert answered.json["decision"]["policy_name"] == "unknown_destination"
            answered = await through(proxy, f"http://127.0.0.1:{metrics}/metrics")
            assert answered.status != 200
            assert b"sluice_" not in answered.body
            await _stopped(sidecar)
        assert upstream.begun == []


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_shutdown.py::test_a_stop_in_each_state_leaves_nothing_open"
)
async def test_an_open_tunnel_does_not_delay_a_stop(tmp_path: Path) -> None:
    proxy = free_port()
    async with data_source() as upstream, fake_control_api() as control:
        source = {
            "alias": "kb", "kind": "rest", "sensitivity": "low",
            "upstream": f"http://127.0.0.1:{upstream.port}",
        }  # fmt: skip
        settings = {"forward_proxy": f"127.0.0.1:{proxy}", "drain_seconds": 1, "sources": [source]}
        async with sidecar_process(tmp_path, control, **settings) as sidecar:
            control.create_tenant()
            await sidecar.start()
            where = f"127.0.0.1:{upstream.port}"
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
            writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            # One that waits for its first byte, and one in which a request was answered.
            other, idle = await asyncio.open_connection("127.0.0.1", proxy)
            idle.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            await other.readuntil(b"\r\n\r\n")
            writer.write(f"GET /a HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await _stopped(sidecar)
            for each in (writer, idle):
                each.close()
        await until_async("it ships", lambda: control.records)


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_shutdown.py::test_an_open_request_finishes_at_a_stop_and_ends_its_connection"
)
@pytest.mark.parametrize("way", ["reverse", "forward"])
async def test_an_open_response_at_a_stop_ends_its_connection(tmp_path: Path, way: str) -> None:
    """So that a client with a pool of connections does not send its next request here."""
    proxy, reverse = free_port(), free_port()
    release = asyncio.Event()

    async def held(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await answer(body=b"whole")(seen, writer)

    async with data_source(held) as upstream, fake_control_api() as control:
        source = {
            "alias": "kb", "kind": "rest", "sensitivity": "low",
            "upstream": f"http://127.0.0.1:{upstream.port}", "listen": f"127.0.0.1:{reverse}",
            "names": {"rest://kb/a": {"source_id": "contracts", "sensitivity": "low"}},
        }  # fmt: skip
        settings = {"forward_proxy": f"127.0.0.1:{proxy}", "sources": [source]}
        async with sidecar_process(tmp_path, control, **settings) as sidecar:
            control.create_tenant()
            await sidecar.start()
            where = f"127.0.0.1:{upstream.port}"
            target, port = ("/a", reverse) if way == "reverse" else (f"http://{where}/a", proxy)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {target} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            await until_async("the source has the request", lambda: upstream.begun)
            sidecar.tell(signal.SIGTERM)
            await until_async("it stops", sidecar.stopping)
            release.set()
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nConnection: close" in head
            assert body == b"whole"
            assert await sidecar.ended() == 0
        await until_async("it ships", lambda: control.records)


async def _stopped(sidecar: SidecarProcess) -> None:
    sidecar.tell(signal.SIGTERM)
    assert await sidecar.ended() == 0
    assert "Traceback" not in await sidecar.log()
