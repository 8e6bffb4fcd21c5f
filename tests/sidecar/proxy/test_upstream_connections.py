"""Connections to the data source: used again, but never for what may belong to another request."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.proxy.raw_client import ask, get
from tests.support import waiting
from tests.support.proxy import (
    ProxySetup,
    policy,
    proxy_setup,
)
from tests.support.scripted_source import Seen, answer, scripted

HOST = "Host: kb.test"


async def test_a_connection_that_the_data_source_closed_is_not_used_twice(
    setup: ProxySetup,
) -> None:
    setup.upstream.script = scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", close=True)
    for _ in range(3):
        assert (await setup.ask(get("/a"))).status == 200
        await waiting.turns()
    assert len(setup.upstream.seen) == 3


async def test_a_connection_is_used_for_several_requests(setup: ProxySetup) -> None:
    for _ in range(5):
        assert (await setup.ask(get("/a"))).status == 200
    assert setup.upstream.connections == 1


async def test_a_write_is_sent_only_once_however_it_fails(setup: ProxySetup) -> None:
    for method in ("PUT", "DELETE", "POST"):
        setup.upstream.script = answer()
        await setup.ask(get("/warm"))
        setup.upstream.script = scripted(close=True)
        asked = f"{method} /once HTTP/1.1\r\n{HOST}\r\nConnection: close\r\n\r\n".encode()
        assert (await setup.ask(asked)).status == 502
    assert setup.upstream.targets.count("/once") == 3


async def test_an_unrequested_answer_is_returned_to_no_request(setup: ProxySetup) -> None:
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    setup.upstream.script = scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", None, extra)
    assert (await setup.ask(get("/a"))).body == b"ok"
    await waiting.turns(200)
    setup.upstream.script = answer("HTTP/1.1 200 OK", b"right")
    assert (await setup.ask(get("/b"))).body == b"right"


async def test_bytes_behind_an_answer_end_its_connection(setup: ProxySetup) -> None:
    poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    setup.upstream.script = scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + poison)
    assert (await setup.ask(get("/a"))).body == b"ok"
    setup.upstream.script = answer("HTTP/1.1 200 OK", b"right")
    assert (await setup.ask(get("/b"))).body == b"right"


async def test_proxy_variables_of_the_environment_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with proxy_setup(tmp_path, policy()) as made:
        assert (await made.ask(get("/a"))).status == 200


GET_LEAN = b"GET /b HTTP/1.1\r\nHost: kb\r\n\r\n"
POST_LEAN = b"POST /b HTTP/1.1\r\nHost: kb\r\nContent-Length: 0\r\n\r\n"
HEAD_LEAN = b"HEAD /b HTTP/1.1\r\nHost: kb\r\n\r\n"


@pytest.mark.parametrize("data", [GET_LEAN, HEAD_LEAN])
async def test_a_read_on_a_connection_that_was_closed_meanwhile_is_sent_once_more(
    setup: ProxySetup, data: bytes
) -> None:
    closing = ["first"]

    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if closing and seen.target == "/b":
            closing.pop()
            writer.close()  # as a server does whose time for an unused connection has run out
        else:
            await answer()(seen, writer)

    setup.upstream.script = closes
    await ask(setup.port, get("/a"))
    answered = await ask(setup.port, data)
    assert answered.status == 200
    assert setup.upstream.targets == ["/a", "/b", "/b"]
    assert len(await setup.sidecar.decisions()) == 2
    [_, lineage] = await setup.sidecar.lineage(2)
    assert lineage["detail"]["retries"] == 1
    assert lineage["outcome"] == "completed"


async def test_a_read_is_sent_once_more_and_not_again(setup: ProxySetup) -> None:
    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/b":
            writer.close()
        else:
            await answer()(seen, writer)

    setup.upstream.script = closes
    await ask(setup.port, get("/a"))
    assert (await ask(setup.port, GET_LEAN)).status == 502
    assert setup.upstream.targets == ["/a", "/b", "/b"]


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 2"])
async def test_a_write_or_a_partly_answered_request_is_not_sent_again(
    setup: ProxySetup, said: bytes
) -> None:
    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/b":
            writer.write(said)
            await writer.drain()
            writer.close()
        else:
            await answer()(seen, writer)

    setup.upstream.script = closes
    await ask(setup.port, get("/a"))
    data = GET_LEAN if said else POST_LEAN
    assert (await ask(setup.port, data)).status == 502
    assert setup.upstream.targets == ["/a", "/b"]
