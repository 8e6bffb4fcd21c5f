"""Requests and responses on streams of HTTP/2: what is sent of a head, where a response ends, and
that one which broke off never looks whole."""

import pytest

from sidecar.http.client.request import UpstreamRequest
from sidecar.http.messages.body import BodyStream, ConnectionLost
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.messages.response_parser import BadResponse
from tests.sidecar.http.client.served_http2 import CANCEL, GET, LIMITS, ask, begun, served
from tests.sidecar.http.http2 import frames
from tests.support.http2_source import OK, Call, Script
from tests.support.waiting import turns, until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/client/test_http2.py::test_requests_share_a_connection"
)


async def test_fields_of_a_connection_are_not_sent() -> None:
    lines = (
        b"X-A: 1\r\nConnection: TE\r\nTE: trailers\r\nTE: gzip\r\nTransfer-Encoding: chunked\r\n"
        b"Keep-Alive: 5\r\nUpgrade: x\r\nProxy-Connection: x\r\nHost: other\r\nCookie: a=1; b=2\r\n"
        b"Content-Length: 9\r\nX-B: \xff\r\n"
    )
    async with served() as (pool, source):
        await ask(pool, GET._replace(lines=lines))
        await ask(pool, GET._replace(lines=b"Content-Type: application/grpc+proto\r\n"))
        assert sorted(source.calls[0].fields) == [
            (b"cookie", b"a=1; b=2"),
            (b"te", b"trailers"),
            (b"x-a", b"1"),
            (b"x-b", b"\xff"),
        ]
        assert source.calls[1].fields == [
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc+proto"),
        ]


async def test_a_body_is_sent_with_its_length_and_its_trailers() -> None:
    post = UpstreamRequest("POST", "/a", b"", body=b"abc")
    async with served() as (pool, source):
        await ask(pool, post._replace(length=b"3"))
        await ask(pool, post._replace(chunked=True, trailer_lines=b"X-Sum: 1\r\n"))
        await ask(pool, post._replace(body=b"", chunked=True))
        await ask(pool, post._replace(body=b"", length=b"0"))
        assert [bytes(each.body) for each in source.calls] == [b"abc", b"abc", b"", b""]
        assert [each.trailers for each in source.calls] == [[], [(b"x-sum", b"1")], [], []]
        assert [dict(each.fields) for each in source.calls] == [
            {b"content-length": b"3"},
            {},
            {},
            {b"content-length": b"0"},
        ]


@pytest.mark.parametrize(
    ("method", "fields", "data"),
    [
        ("HEAD", [*OK, ("content-length", "5")], None),
        ("HEAD", [*OK, ("content-length", "5")], b""),
        ("GET", [(":status", "204")], None),
        ("GET", [(":status", "304"), ("content-length", "5")], None),
        ("GET", OK, None),
        ("GET", OK, b""),
    ],
)
async def test_responses_without_a_body(
    method: str, fields: list[tuple[str, str]], data: bytes | None
) -> None:
    async def script(call: Call) -> None:
        call.begin(fields, end=data is None)
        if data is not None:
            await call.data(data, end=True)

    async with served(script) as (pool, source):
        message, body = await ask(pool, GET._replace(method=method))
        assert (message.status, body) == (int(fields[0][1]), b"")
        assert message.empty == (method == "HEAD" or message.status != 200)
        assert (await ask(pool, GET._replace(method=method)))[1] == b""
        assert len(source.connections) == 1


async def test_interim_responses_are_dropped_and_bounded() -> None:
    async def script(call: Call) -> None:
        for _ in range(64 if call.target == "/a" else 65):
            call.begin([(":status", "103"), ("link", "x")])
        await call.answer()

    async with served(script) as (pool, source):
        assert (await ask(pool))[1] == b"ok"
        with pytest.raises(BadResponse, match="interim"):
            await ask(pool, GET._replace(target="/b"))
        assert (await ask(pool))[1] == b"ok"
        assert len(source.connections) == 1


async def test_a_head_above_the_limits_fails_its_request() -> None:
    many = [(f"x-{each}", "1") for each in range(25)]

    async def script(call: Call) -> None:
        await call.answer(fields=[*OK, *(many if call.target == "/a" else [])])

    limits = LIMITS._replace(head=HeadLimits(1000, 1000, 20))
    async with served(script, limits) as (pool, source):
        with pytest.raises(BadResponse, match="larger"):
            await ask(pool)
        assert (await ask(pool, GET._replace(target="/b")))[1] == b"ok"
        assert len(source.connections) == 1


@pytest.mark.parametrize("said", ["trailers", "grpc"])
async def test_trailers_are_kept_if_they_are_forwarded(said: str) -> None:
    fields = [*OK, *([("content-type", "application/grpc")] if said == "grpc" else [])]

    async def script(call: Call) -> None:
        call.begin(fields)
        await call.data(b"ok")
        call.finish([("grpc-status", "0"), ("x-sluice-event-id", "1"), ("retry-after", "2")])

    async with served(script, LIMITS._replace(trailers=said == "trailers")) as (pool, _):
        if said == "trailers":
            with pytest.raises(BadResponse, match="may not be a trailer"):
                await ask(pool)
        else:
            message, body = await ask(pool)
            assert body == b"ok"
            assert message.trailer_head.lines(message.body.trailers) == (
                b"grpc-status: 0\r\nretry-after: 2\r\n"
            )


# ----------------------------------------------------------------------------------- broken off


async def _length(call: Call) -> None:
    call.begin([*OK, ("content-length", "5")])
    await call.data(b"abc", end=True)


async def _longer(call: Call) -> None:
    call.begin([*OK, ("content-length", "2")])
    await call.data(b"abc", end=True)


async def _reset(call: Call) -> None:
    call.begin()
    await call.data(b"abc")
    call.refuse(2)


async def _no_error(call: Call) -> None:
    call.begin()
    await call.data(b"abc")
    call.refuse(0)


async def _closed(call: Call) -> None:
    call.begin()
    await call.data(b"abc")
    await turns()
    call.connection.writer.close()


async def _bad_field(call: Call) -> None:
    call.begin([*OK, ("connection", "close")])


async def _switches(call: Call) -> None:
    call.begin([(":status", "101")])


async def _unanswered(call: Call) -> None:
    call.refuse(0)


async def _connect_again(call: Call) -> None:
    call.begin()
    await call.data(b"abc")
    call.begin([(":status", "200"), ("x", "1")], end=True)


@pytest.mark.parametrize(
    "script",
    [
        _length, _longer, _reset, _no_error, _closed, _bad_field, _switches, _unanswered,
        _connect_again,
    ],
)  # fmt: skip
async def test_a_response_that_breaks_off_never_looks_whole(script: Script) -> None:
    first: list[Call] = []

    async def once(call: Call) -> None:
        first.append(call)
        await (script(call) if len(first) == 1 else call.answer())

    async with served(once) as (pool, source):
        with pytest.raises((BadResponse, ConnectionLost)):
            await ask(pool)
        assert (await ask(pool))[1] == b"ok"
        assert len(source.connections) == (2 if script is _closed else 1)


async def test_a_response_that_arrived_is_whole_although_its_stream_is_reset() -> None:
    async def script(call: Call) -> None:
        await call.answer()
        call.connection.writer.write(frames.reset(call.stream, 0))

    upload = UpstreamRequest("POST", "/a", b"", chunked=True, stream=BodyStream())
    async with served(script) as (pool, source):
        carrier = await begun(pool, upload)
        message = await carrier.response()
        assert await message.body.next(5) == b"ok"
        await turns()
        assert message.body.taken
        with pytest.raises(ConnectionLost):
            carrier.send_part(b"more")
        pool.discard(carrier)
        assert (await ask(pool))[1] == b"ok"
        assert len(source.connections) == 1


async def test_a_request_that_is_no_longer_wanted_is_reset_and_the_connection_stays() -> None:
    async def script(call: Call) -> None:
        if call.target == "/b":
            await call.answer()
        elif call.target == "/begun":
            call.begin()
            await call.data(bytes(10 << 20))

    async with served(script) as (pool, source):
        for target in ("/silent", "/begun"):
            carrier = await begun(pool, GET._replace(target=target))
            if target == "/begun":
                await carrier.response()
            await until_async("it has arrived", lambda: target in source.targets)  # noqa: B023
            pool.discard(carrier)
            await until_async("the reset", lambda: source.calls[-1].reset == CANCEL)
        assert (await ask(pool, GET._replace(target="/b")))[1] == b"ok"
        assert len(source.connections) == 1
