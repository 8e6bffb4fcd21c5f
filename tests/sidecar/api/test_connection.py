"""A connection to the sidecar's port, byte by byte: data that is not HTTP, comes in pieces or never
comes."""

import asyncio
import contextlib
import re
from pathlib import Path

import orjson
import pytest

from sidecar.http.request_body import MAX_BODY
from tests.sidecar.error_bodies import is_error, refused
from tests.sidecar.proxy.http2_client import Http2Client
from tests.sidecar.wire import GOOD, answer_of, connect, head, raw, request, with_key
from tests.support import waiting
from tests.support.fake_control_api import EVALUATE_KEY, fake_control_api
from tests.support.sidecar import EVALUATE, RunningSidecar, running_sidecar


async def test_a_body_over_the_limit_is_refused_with_413_however_it_arrives(
    sidecar: RunningSidecar,
) -> None:
    at_most = GOOD[:-1] + b" " * (MAX_BODY - len(GOOD)) + b"}"
    assert (await sidecar.call("POST", EVALUATE, at_most)).status == 200
    await refused(sidecar, 413, body=at_most + b" ")
    told = b"Content-Length: %d\r\n" % (50 * MAX_BODY)
    status, _, body = await raw(sidecar, head(told + with_key()))
    assert status == 413
    is_error(413, body)
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    chunked = head(b"Transfer-Encoding: chunked\r\n" + with_key()) + chunk * 18
    status, _, body = await raw(sidecar, chunked)
    assert status == 413
    is_error(413, body)
    assert len(await sidecar.records()) == 1
    assert (await sidecar.evaluate())["decision"] == "ALLOW"


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/0.9\r\nHost: a\r\n\r\n",
        b"G\x00T /health HTTP/1.1\r\nHost: a\r\n\r\n",
        b"FROBNICATE /health HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nA: b\r\n folded\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 9000 + b"\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
        (
            b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
    ],
)
async def test_data_other_than_http_is_400_and_not_echoed(tmp_path: Path, sent: bytes) -> None:
    async with (
        fake_control_api() as control,
        running_sidecar(tmp_path, control, synced=False) as running,
    ):
        reader, writer = await connect(running)
        writer.write(sent)
        async with asyncio.timeout(20):
            status, top, body = await answer_of(reader)
            assert status == 400
            assert b"Connection: close" in top
            told = is_error(400, body)
            assert "FROBNICATE" not in str(told)
            assert "Bad Name" not in str(told)
            assert await reader.read() == b""
        writer.close()


async def test_a_chunked_body_is_read_like_any_other(sidecar: RunningSidecar) -> None:
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in GOOD)
    sent = head(b"Transfer-Encoding: chunked\r\n" + with_key()) + pieces + b"0\r\n\r\n"
    status, _, body = await raw(sidecar, sent)
    assert status == 200
    assert orjson.loads(body)["decision"] == "ALLOW"


@pytest.mark.parametrize("rest", [b"zz\r\n", b"5\r\nabcdefgh\r\n"])
async def test_a_chunked_body_that_breaks_is_400(sidecar: RunningSidecar, rest: bytes) -> None:
    reader, writer = await connect(sidecar)
    writer.write(head(b"Transfer-Encoding: chunked\r\n" + with_key()) + b"1\r\n{\r\n")
    await waiting.turns()
    writer.write(rest)
    async with asyncio.timeout(20):
        status, _, body = await answer_of(reader)
    assert status == 400
    is_error(400, body)
    writer.close()
    assert await sidecar.records() == []


async def test_a_body_in_many_packets_is_awaited(sidecar: RunningSidecar) -> None:
    reader, writer = await connect(sidecar)
    sent = request(with_key(), GOOD)
    for at in range(0, len(sent), 40):
        writer.write(sent[at : at + 40])
        await waiting.turns(5)
    assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_client_that_waits_for_continue_gets_it(sidecar: RunningSidecar) -> None:
    reader, writer = await connect(sidecar)
    fields = b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(GOOD)
    writer.write(head(fields + with_key()))
    async with asyncio.timeout(20):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(GOOD)
        assert (await answer_of(reader))[0] == 200
    # Without a key, the request is refused before its body is read.
    reader, writer = await connect(sidecar)
    writer.write(head(fields))
    async with asyncio.timeout(20):
        assert (await answer_of(reader))[0] == 401
    writer.close()


async def test_a_body_that_does_not_arrive_is_408(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.http.request_body.BODY_SECONDS", 0.2)
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            reader, writer = await connect(running)
            writer.write(request(with_key(), GOOD)[:-5])
            async with asyncio.timeout(20):
                status, top, body = await answer_of(reader)
                assert status == 408
                assert b"Connection: close" in top
                is_error(408, body)
                assert await reader.read() == b""
            writer.close()
            assert await running.records() == []


async def test_a_head_that_does_not_arrive_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.api.http_server.KEEPALIVE_SECONDS", 0.3)
    async with (
        fake_control_api() as control,
        running_sidecar(tmp_path, control, synced=False) as running,
    ):
        idle, _ = await connect(running)
        slow, writer = await connect(running)
        used, user = await connect(running)
        user.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        await answer_of(used)

        async def drip() -> None:
            for byte in b"GET /health HTTP/1.1\r\nHost: " + b"a" * 200:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(20):
            for reader in (idle, slow, used):
                # Data that arrives after the close makes the system reset the connection.
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        dripping.cancel()


async def test_a_client_that_keeps_sending_still_gets_its_last_answer(
    sidecar: RunningSidecar,
) -> None:
    """RFC 9112 section 9.6: closing with unread bytes would reset the connection."""
    reader, writer = await connect(sidecar)
    writer.write(request(with_key() + b"Connection: close\r\n", GOOD))
    while len(await sidecar.records()) < 1:
        await waiting.turns()
    for _ in range(20):
        writer.write(b"x" * 1000)
        await waiting.turns()
    writer.write_eof()
    async with asyncio.timeout(20):
        status, _, _ = await answer_of(reader)
        assert status == 200
        assert await reader.read() == b""
    writer.close()
    assert len(await sidecar.records()) == 1


async def test_a_half_closed_client_still_gets_its_answer(sidecar: RunningSidecar) -> None:
    reader, writer = await connect(sidecar)
    writer.write(request(with_key(), GOOD))
    writer.write_eof()
    async with asyncio.timeout(20):
        status, _, body = await answer_of(reader)
        assert status == 200
        assert orjson.loads(body)["decision"] == "ALLOW"
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_closes_in_the_middle_of_a_body_leaves_nothing(
    sidecar: RunningSidecar,
) -> None:
    for half in (request(with_key(), GOOD)[:-5], head(with_key())[:-9]):
        reader, writer = await connect(sidecar)
        writer.write(half)
        await waiting.turns()
        writer.write_eof()
        async with asyncio.timeout(20):
            await reader.read()
        writer.close()
    assert await sidecar.records() == []


async def test_pipelined_requests_are_answered_in_order(sidecar: RunningSidecar) -> None:
    reader, writer = await connect(sidecar)
    count = 200
    for number in range(count):
        fields = b"X-Request-ID: r-%d\r\n" % number
        writer.write(request(fields + with_key(), GOOD))
    async with asyncio.timeout(20):
        for number in range(count):
            status, top, _ = await answer_of(reader)
            assert status == 200
            assert b"X-Request-ID: r-%d\r\n" % number in top
    writer.close()
    assert len(await sidecar.records()) == count


async def test_a_refused_upgrade_or_tunnel_ends_the_connection(sidecar: RunningSidecar) -> None:
    """RFC 9931: the bytes after it are not a request of this client."""
    smuggled = request(with_key(), GOOD)
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    for opening in (
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n",
    ):
        reader, writer = await connect(sidecar)
        writer.write(opening + smuggled)
        async with asyncio.timeout(20):
            everything = await reader.read()
        assert everything.count(b"HTTP/1.1 ") == 1, everything
        writer.close()
    assert await sidecar.records() == []


async def test_an_http_1_0_client_is_disconnected_unless_it_asks_for_keep_alive(
    tmp_path: Path,
) -> None:
    async with (
        fake_control_api() as control,
        running_sidecar(tmp_path, control, synced=False) as running,
    ):
        reader, writer = await connect(running)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(20):
            assert b"Connection: close" in (await answer_of(reader))[1]
            assert await reader.read() == b""
        reader, writer = await connect(running)
        for _ in range(2):
            writer.write(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            async with asyncio.timeout(20):
                assert b"Connection: keep-alive" in (await answer_of(reader))[1]
        writer.close()


async def test_head_is_get_without_the_body(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        running_sidecar(tmp_path, control, synced=False) as running,
    ):
        reader, writer = await connect(running)
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            everything = await reader.read()
        length = re.findall(rb"Content-Length: (\d+)", everything)
        assert len(set(length)) == 1
        assert everything.count(b'"status"') == 1
        writer.close()


async def test_a_refusal_can_be_read_while_the_body_still_arrives(sidecar: RunningSidecar) -> None:
    reader, writer = await connect(sidecar)
    writer.write(head(b"Content-Length: 300000\r\n") + b" " * 1000)
    async with asyncio.timeout(20):
        assert (await answer_of(reader))[0] == 401
        writer.write(b" " * 299_000)
        writer.write(request(with_key(), GOOD))
        assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_client_that_does_not_read_stops_being_read(sidecar: RunningSidecar) -> None:
    _reader, writer = await connect(sidecar)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    sent = request(with_key(), GOOD)
    taken = 0
    try:
        # expires on purpose
        async with asyncio.timeout(1):
            while taken < 200_000:
                writer.write(sent * 100)
                await writer.drain()
                taken += 100
    except TimeoutError:
        pass
    assert taken < 200_000
    writer.transport.abort()
    assert (await sidecar.evaluate())["decision"] == "ALLOW"


async def test_an_evaluation_over_http_2_is_that_of_http_1(sidecar: RunningSidecar) -> None:
    client = Http2Client(*await connect(sidecar))
    typed = ("content-type", "application/json")
    got = await client.ask(
        EVALUATE, ("x-api-key", EVALUATE_KEY), typed, method="POST", host="a", body=GOOD
    )
    assert got.status == 200, got
    assert orjson.loads(got.body)["decision"] == "ALLOW"
    assert (await client.ask(EVALUATE, typed, method="POST", host="a", body=GOOD)).status == 401
    assert len(await sidecar.records()) == 1
