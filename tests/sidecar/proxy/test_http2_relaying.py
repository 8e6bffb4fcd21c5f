"""What goes to a data source over HTTP/2 and back: framed anew, judged and recorded as before, sent
again only if nothing has read it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sidecar.settings.model import RestRule
from tests.sidecar.http.http2 import frames
from tests.sidecar.proxy.in_front_of_http2 import GET, client_of, in_front
from tests.sidecar.proxy.raw_client import ask
from tests.support.http2_source import OK, Call
from tests.support.loop_clock import moving_clock
from tests.support.waiting import turns, until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_http2_upstream.py::test_a_request_is_sent_on_over_http_2"
)


@pytest.mark.parametrize("http", ["1", "2"], ids=["agent of HTTP/1.1", "agent of HTTP/2"])
async def test_agents_of_either_version_get_the_same(tmp_path: Path, http: str) -> None:
    async def script(call: Call) -> None:
        await call.ended.wait()
        await call.answer(b"<%b>" % bytes(call.body), [*OK, ("x-a", "b"), ("x-sluice-mine", "1")])

    async with in_front(tmp_path, script, writes="allow") as (port, upstream, made):
        if http == "1":
            body = b"Content-Length: 3\r\n\r\nabc"
            got = await ask(
                port, b"POST /w HTTP/1.1\r\nHost: kb.test\r\nConnection: close\r\n" + body
            )
            assert (got.status, got.body) == (200, b"5\r\n<abc>\r\n0\r\n\r\n")
            assert got.fields["x-a"] == "b"
            assert "x-sluice-mine" not in got.fields
        else:
            async with client_of(port) as client:
                answer = await client.ask("/w", method="POST", body=b"abc")
                assert (answer.status, answer.body, answer.reset) == (200, b"<abc>", None)
                assert answer.fields[b"x-a"] == b"b"
                assert b"x-sluice-mine" not in answer.fields
        [call] = upstream.calls
        assert bytes(call.body) == b"abc"
        assert [each[0] for each in await made.decisions()] == ["ALLOW"]


async def test_requests_of_many_agents_share_a_connection(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def script(call: Call) -> None:
        await go.wait()
        await call.answer()

    async with in_front(tmp_path, script) as (port, upstream, _), client_of(port) as client:
        agents = [asyncio.ensure_future(ask(port, GET % b"/one")) for _ in range(10)]
        streams = [client.begin(f"/{number}") for number in range(90)]
        client.flush()
        await until_async("all have begun", lambda: len(upstream.calls) == 100)
        assert upstream.open == 1
        client.begin("/more")
        client.flush()
        await until_async("another connection", lambda: len(upstream.calls) == 101)
        assert upstream.open == 2
        go.set()
        assert {each.status for each in await asyncio.gather(*agents)} == {200}
        assert {(await client.result(each)).body for each in streams} == {b"ok"}


@pytest.mark.parametrize("length", [None, "5"])
async def test_a_response_that_breaks_off_is_reset_and_never_ends(
    tmp_path: Path, length: str | None
) -> None:
    go = asyncio.Event()

    async def script(call: Call) -> None:
        call.begin([*OK, *([("content-length", length)] if length else [])])
        await call.data(b"abc")
        await go.wait()
        if length:
            call.connection.h2.end_stream(call.stream)
            call.connection.flush()
        else:
            call.refuse(2)

    async with in_front(tmp_path, script) as (port, upstream, made), client_of(port) as client:
        stream = client.begin("/one")
        while client.exchanges[stream].body != b"abc":
            await client.exchange()
        go.set()
        got = await client.result(stream)
        assert (got.ended, got.reset is not None) == (False, True)
        go.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"/one")
        await reader.readuntil(b"\r\n\r\n")  # an event's id may have these letters too
        await reader.readuntil(b"abc")
        go.set()
        assert await reader.read() in (b"", b"\r\n")
        writer.close()
        outcomes = [each["outcome"] for each in await made.lineage(2)]
        assert outcomes == ["truncated"] * 2
        assert upstream.open == 1


@pytest.mark.parametrize("setting", ["drop", "forward"])
async def test_trailers_follow_the_setting(tmp_path: Path, setting: str) -> None:
    async def script(call: Call) -> None:
        await call.ended.wait()
        call.begin()
        await call.data(bytes(call.body))
        call.finish([("x-sum", "1")])

    async with in_front(tmp_path, script, trailers=setting, writes="allow") as (port, upstream, _):
        async with client_of(port) as client:
            got = await client.ask("/w", ("trailer", "x-end"), method="POST", body=b"abc")
        forwards = setting == "forward"
        assert got.trailers == ({b"x-sum": b"1"} if forwards else {})
        post = (
            b"POST /w HTTP/1.1\r\nHost: kb.test\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n"
        )
        post += b"Connection: TE, close\r\n\r\n3\r\nabc\r\n0\r\nX-End: 2\r\n\r\n"
        raw = await ask(port, post)
        assert raw.body == b"3\r\nabc\r\n0\r\n" + (b"x-sum: 1\r\n\r\n" if forwards else b"\r\n")
        call = upstream.calls[1]
        assert call.trailers == ([(b"x-end", b"2")] if forwards else [])
        assert ((b"te", b"trailers") in call.fields) == forwards


async def test_trailers_of_grpc_are_always_relayed_to_its_clients(tmp_path: Path) -> None:
    grpc = [*OK, ("content-type", "application/grpc")]

    async def script(call: Call) -> None:
        await call.ended.wait()
        if call.target == "/only":
            call.begin([*grpc, ("grpc-status", "5")], end=True)
            return
        call.begin(grpc)
        await call.data(b"\0\0\0\0\0")
        call.finish([("grpc-status", "0"), ("x-sluice-mine", "1")])

    async with in_front(tmp_path, script, writes="allow") as (port, upstream, _):
        async with client_of(port) as client:
            sent = [("content-type", "application/grpc"), ("te", "trailers")]
            got = await client.ask("/a", *sent, method="POST", body=b"\0\0\0\0\0")
            assert (got.body, got.trailers) == (bytes(5), {b"grpc-status": b"0"})
            got = await client.ask("/only", *sent, method="POST", body=b"\0\0\0\0\0")
            assert (got.fields[b"grpc-status"], got.body, got.ended) == (b"5", b"", True)
        assert (b"te", b"trailers") in upstream.calls[0].fields
        raw = await ask(port, GET % b"/a")
        assert raw.body == b"5\r\n" + bytes(5) + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize("data", [GET % b"/b", b"HEAD /b HTTP/1.1\r\nHost: kb\r\n\r\n"])
@pytest.mark.parametrize("how", ["refused", "going away", "closed"])
async def test_a_read_that_the_source_did_not_read_is_sent_once_more(
    tmp_path: Path, data: bytes, how: str
) -> None:
    async def script(call: Call) -> None:
        if call.target == "/b" and upstream.targets.count("/b") == 1:
            if how == "refused":
                call.refuse(7)
            elif how == "going away":
                call.connection.go_away(call.stream - 2)
            else:
                call.connection.writer.transport.abort()
        else:
            await call.answer()

    async with in_front(tmp_path, script) as (port, upstream, made):
        await ask(port, GET % b"/a")
        assert (await ask(port, data)).status == 200
        assert upstream.targets == ["/a", "/b", "/b"]
        assert len(upstream.connections) == (1 if how == "refused" else 2)
        assert len(await made.decisions()) == 2
        [_, lineage] = await made.lineage(2)
        assert (lineage["detail"]["retries"], lineage["outcome"]) == (1, "completed")


async def test_a_request_is_not_sent_a_third_time(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        call.refuse(7)

    async with in_front(tmp_path, script) as (port, upstream, _):
        assert (await ask(port, GET % b"/b")).status == 502
        assert upstream.targets == ["/b", "/b"]


POST = b"POST /q HTTP/1.1\r\nHost: kb.test\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("class_", "how", "times"),
    [
        ("retrieve", "refused", 2),
        ("retrieve", "closed", 1),
        ("write", "refused", 1),
        ("retrieve", "begun", 1),
    ],
)
async def test_only_a_retrieval_whose_body_is_held_and_that_was_never_read_is_sent_again(
    tmp_path: Path, class_: Any, how: str, times: int
) -> None:
    async def script(call: Call) -> None:
        if call.target == "/warm" or upstream.targets.count("/q") == 2:
            await call.answer()
        elif how == "closed":
            call.connection.writer.transport.abort()
        else:
            if how == "begun":
                call.begin()
                await call.data(b"abc")
            call.refuse(7)

    rule = RestRule(method="POST", path="/q", class_=class_)
    async with in_front(tmp_path, script, routes=(rule,), writes="allow") as (port, upstream, _):
        await ask(port, GET % b"/warm")
        got = await ask(port, POST)
        assert upstream.targets.count("/q") == times
        assert got.status == (200 if times == 2 or how == "begun" else 502)


async def test_an_agent_that_leaves_resets_its_stream_and_the_connection_stays(
    tmp_path: Path,
) -> None:
    async def script(call: Call) -> None:
        if call.target == "/b":
            await call.answer()
        elif call.target == "/begun":
            call.begin()
            await call.data(b"abc")

    async with in_front(tmp_path, script) as (port, upstream, _):
        for target in ("/silent", "/begun"):
            async with client_of(port) as client:
                stream = client.begin(target)
                client.flush()
                await until_async("it has begun", lambda: target in upstream.targets)  # noqa: B023
                if target == "/begun":
                    while not client.exchanges[stream].body:
                        await client.exchange()
                client.h2.reset_stream(stream, 8)
                client.flush()
                await until_async("the reset", lambda: upstream.calls[-1].reset == 8)
        assert (await ask(port, GET % b"/b")).status == 200
        assert upstream.open == 1
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"/silent")
        await until_async("it has begun", lambda: upstream.targets.count("/silent") == 2)
        assert upstream.open == 1
        writer.transport.abort()
        await until_async("the reset", lambda: upstream.calls[-1].reset == 8)


async def test_a_large_upload_waits_for_the_source_and_arrives_whole(tmp_path: Path) -> None:
    size = 4 << 20

    async def script(call: Call) -> None:
        await call.ended.wait()
        await call.answer(b"%d" % len(call.body))

    async with in_front(tmp_path, script, writes="allow") as (port, upstream, _):
        upstream.credits = False
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"PUT /w HTTP/1.1\r\nHost: kb.test\r\nContent-Length: %d\r\n\r\n" % size
        writer.write(head + bytes(size))
        await until_async("the window is full", lambda: upstream.calls and upstream.calls[0].unread)
        await turns(100)
        [call] = upstream.calls
        assert len(call.body) == 65_535
        upstream.credits = True
        call.connection.h2.acknowledge_received_data(call.unread, call.stream)
        call.connection.flush()
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n0\r\n\r\n") == b"7\r\n%d\r\n0\r\n\r\n" % size
        writer.close()


async def test_an_answer_before_the_end_of_an_upload_reaches_the_agent(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        call.begin([(":status", "413")])
        await call.data(b"no", end=True)
        call.refuse(0)

    async with in_front(tmp_path, script, writes="allow") as (port, upstream, _):
        async with client_of(port) as client:
            got = await client.ask("/w", method="POST", body=b"abc", end=False)
            assert (got.status, got.body) == (413, b"no")
        assert upstream.open == 1


async def test_a_slow_agent_slows_its_stream_alone(tmp_path: Path) -> None:
    sent = [0]

    async def script(call: Call) -> None:
        if call.target == "/b":
            await call.answer()
            return
        call.begin()
        for _ in range(1024):
            await call.data(bytes(65536))
            sent[0] += 65536

    async with in_front(tmp_path, script) as (port, upstream, _), client_of(port) as client:
        client.begin("/slow")
        client.flush()
        before = -1
        while sent[0] != before or not before:
            before = sent[0]
            await turns(200)
        assert before <= 4 << 20
        async with client_of(port) as other:
            assert (await other.ask("/b")).body == b"ok"
        assert upstream.open == 1


async def test_a_flood_is_a_502_and_the_next_request_is_served(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        if call.target == "/flood":
            call.connection.writer.write(frames.ping() * 200)
        else:
            await call.answer()

    async with in_front(tmp_path, script) as (port, upstream, _):
        assert (await ask(port, GET % b"/flood")).status == 502
        assert (await ask(port, GET % b"/b")).status == 200
        assert len(upstream.connections) == 2


async def test_a_data_source_that_stops_within_a_frame_holds_no_later_request(
    tmp_path: Path,
) -> None:
    async def script(call: Call) -> None:
        if call.connection is not upstream.connections[0]:
            await call.answer()

    with moving_clock() as clock:
        async with in_front(tmp_path, script) as (port, upstream, _), client_of(port) as client:
            stuck = [client.begin("/stuck") for _ in range(2)]
            client.flush()
            await until_async("both have arrived", lambda: len(upstream.calls) == 2)
            [served] = upstream.connections
            served.silent = True
            head = frames.headers(1, [(b":status", b"200")], end=False)
            served.writer.write(head + frames.data(1, b"abc")[:-1])
            await turns(50)
            await clock.skip(6)
            assert (await client.ask("/later")).status == 200
            assert not served.over.is_set()
            await clock.skip(8)
            await clock.skip(8)
            got = [await client.result(each) for each in stuck]
            assert [each.status for each in got] == [200, 502]
            assert got[0].reset, "it must not look whole"
