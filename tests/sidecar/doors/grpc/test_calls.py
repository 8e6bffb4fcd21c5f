"""Calls of a gRPC check door as no client of grpcio's makes them: every check is answered, and
what is no check is refused in its own form."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import orjson
import pytest

from policies.ground.addresses import ListenAddress
from sidecar.http.grpc.framing import frame
from sidecar.http.http2.session import NO_ERROR, PREFACE
from sidecar.settings.sections import Door, DoorTls
from tests.sidecar.doors.grpc.envoy_messages import message
from tests.sidecar.doors.grpc.grpc_setup import CHECK, HEALTH, KEY, LOCAL, GrpcDoor, code, grpc_door
from tests.sidecar.doors.grpc.test_messages import http
from tests.sidecar.http.http2 import frames
from tests.sidecar.proxy.http2_client import Exchange, Http2Client
from tests.support import waiting
from tests.support.certificates import authority
from tests.support.scripted_source import Seen, data_source
from tests.support.waiting import until_async

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/doors/grpc/test_service.py::test_an_allowed_request_passes_with_its_event"
)

GRPC = ("content-type", "application/grpc")
HEAD = (GRPC, ("te", "trailers"), ("x-api-key", KEY))
MESSAGE = http().SerializeToString()
NDJSON = {"content-type": "application/x-ndjson"}
BODY = b'{"index":"a"}\n{}\n'


@asynccontextmanager
async def client(door: GrpcDoor) -> AsyncIterator[Http2Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        yield Http2Client(reader, writer)
    finally:
        writer.close()


def told(exchange: Exchange) -> Any:
    """The CheckResponse that a call was answered, which must have succeeded."""
    assert exchange.status == 200
    assert exchange.reset in (None, NO_ERROR), "the rest of a message is not wanted"
    assert exchange.trailers == {b"grpc-status": b"0"}
    assert exchange.body[:5] == b"\0" + (len(exchange.body) - 5).to_bytes(4, "big")
    return message("CheckResponse").FromString(exchange.body[5:])


async def check(asked: Http2Client, body: bytes, *fields: tuple[str, str]) -> Any:
    return told(await asked.ask(CHECK, *HEAD, *fields, method="POST", body=body))


async def reasons(door: GrpcDoor) -> list[str]:
    """The reasons of the denials so far, each of which is for what can't be read."""
    found = await door.records()
    assert {each["policy_name"] for each in found} <= {"unreadable_request"}
    return [each["reason"] for each in found]


@pytest.mark.parametrize(
    ("body", "fields", "reason"),
    [
        (b"", (), "no message"),
        (b"\0\0\0", (), "torn"),
        (frame(MESSAGE)[:-1], (), "torn"),
        (frame(MESSAGE) * 2, (), "more than one message"),
        (b"\2" + frame(MESSAGE)[1:], (), "flag 2"),
        (b"\1" + frame(MESSAGE)[1:], (("grpc-encoding", "gzip"),), "can't be inflated"),
        (b"\1" + frame(gzip.compress(MESSAGE))[1:], (("grpc-encoding", "br"),), "can't be insp"),
        (b"\1" + frame(gzip.compress(MESSAGE))[1:], (), "can't be inspected"),
        (b"\1" + frame(gzip.compress(bytes(3 << 20)))[1:], (("grpc-encoding", "gzip"),), "larger"),
    ],
    ids=["none", "no length", "torn", "two", "flag", "no gzip", "br", "no coding", "bomb"],
)
async def test_a_body_that_is_not_one_message_is_a_recorded_denial(
    tmp_path: Path, body: bytes, fields: tuple[tuple[str, str], ...], reason: str
) -> None:
    async with grpc_door(tmp_path) as door, client(door) as asked:
        assert code(await check(asked, body, *fields)) == 7
        [found] = await reasons(door)
        assert reason in found
        assert code(await check(asked, frame(MESSAGE))) == 0, "the connection goes on"


async def test_a_message_that_does_not_arrive_in_time_is_a_recorded_denial(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door, client(door) as asked:
        fields = (*HEAD, ("grpc-timeout", "50m"))
        stream = asked.begin(CHECK, *fields, method="POST", body=frame(MESSAGE)[:-1], end=False)
        assert code(told(await asked.result(stream))) == 7
        [found] = await reasons(door)
        assert "did not arrive within 0.05 s" in found


async def test_a_message_in_pieces_is_one_message(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door, client(door) as asked:
        fields = (*HEAD, ("grpc-timeout", "x"))
        stream = asked.begin(CHECK, *fields, method="POST", body=frame(MESSAGE)[:3], end=False)
        await asked.exchange()
        asked.h2.send_data(stream, frame(MESSAGE)[3:], end_stream=True)
        assert code(told(await asked.result(stream))) == 0


async def test_look_ups_end_with_the_deadline_of_the_call(tmp_path: Path) -> None:
    async def script(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await waiting.never()

    async with (
        data_source(script) as upstream,
        grpc_door(tmp_path, port=upstream.port, kind="opensearch") as door,
        client(door) as asked,
    ):
        request = http(
            method="POST", path="/_msearch", headers=NDJSON, raw_body=BODY, size=len(BODY)
        ).SerializeToString()
        async with asyncio.timeout(15):  # by itself, a look-up ends after 30 s
            answer = await check(asked, frame(request), ("grpc-timeout", "300m"))
        assert code(answer) == 7
        assert answer.dynamic_metadata.fields["policy_name"].string_value == "unresolved_source"
        assert len(upstream.seen) == 1
        await until_async("the look-up is broken off", lambda: not upstream.open)
        [record] = await door.records()
        assert record["decision"] == "DENY"


async def test_a_message_without_room_is_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with grpc_door(tmp_path) as door, client(door) as asked:
        monkeypatch.setattr(door.shared.bodies, "limit", len(MESSAGE))
        answer = await check(asked, frame(MESSAGE))
        assert (code(answer), answer.denied_response.status.code) == (14, 503)
        assert await door.records() == []
        monkeypatch.setattr(door.shared.bodies, "limit", len(frame(MESSAGE)))
        assert code(await check(asked, frame(MESSAGE))) == 0
        assert door.shared.bodies.held == 0


async def test_a_burst_of_checks_before_the_settings_are_known_is_answered(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        head = [*frames.POST[:3], (b":path", CHECK.encode())]
        head += [(name.encode(), value.encode()) for name, value in HEAD]
        streams = range(1, 801, 2)
        writer.write(
            PREFACE
            + frames.settings()
            + frames.update(0, 1 << 20)
            + b"".join(
                frames.headers(each, head, end=False) + frames.data(each, frame(MESSAGE), end=True)
                for each in streams
            )
        )
        found, seen = b"", set[int]()
        async with asyncio.timeout(60):
            while len(seen) < len(streams):
                found += await reader.read(65536)
                ended = [each for each in frames.read(found) if each.flags & frames.END_STREAM]
                seen = {each.stream for each in ended if each.kind == frames.HEADERS}
        assert not [each for each in frames.read(found) if each.kind == frames.RST_STREAM]
        writer.close()
        assert len(await door.records()) == len(streams)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_is_no_grpc_is_told_so(tmp_path: Path, method: str) -> None:
    async with grpc_door(tmp_path) as door, client(door) as asked:
        for path in (CHECK, HEALTH, "/v1/check/edge/a"):
            for fields in ((), (("content-type", "application/grpc-web"), ("x-api-key", KEY))):
                got = await asked.ask(path, *fields, method=method)
                assert (got.status, got.reset) == (415, None)
                assert "application/grpc" in orjson.loads(got.body)["message"]
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            lines = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\r\n"
            writer.write(lines.encode())
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"HTTP/2" in answer
        counted = door.sidecar.metrics.responses.collect()
        [family] = counted
        statuses = {each.labels["status"]: each.value for each in family.samples}
        assert statuses == {"400": 3, "415": 6}
        assert await door.records() == []


async def test_a_method_of_another_name_is_told_in_trailers_alone(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door, client(door) as asked:
        for path, method in ((f"{CHECK}?a", "POST"), (CHECK.lower(), "POST"), (CHECK, "PUT")):
            got = await asked.ask(path, *HEAD, method=method, body=frame(MESSAGE))
            assert (got.status, got.body, got.trailers) == (200, b"", {})
            assert got.fields[b"grpc-status"] == b"12"
        assert await door.records() == []


async def test_a_client_of_tls_states_its_scheme_as_it_likes(tmp_path: Path) -> None:
    pair = authority().issue("127.0.0.1")
    tls = DoorTls(pair.certificate, pair.key)
    settings = Door("edge", "envoy_grpc", "kb", LOCAL, listen_tls=tls)
    async with grpc_door(tmp_path, settings=settings) as door:
        credentials = grpc.ssl_channel_credentials(authority().path.read_bytes())
        target = str(ListenAddress("127.0.0.1", door.port))
        async with grpc.aio.secure_channel(target, credentials) as channel:
            call: Any = channel.unary_unary(CHECK)
            answer = await call(MESSAGE, metadata=[("x-api-key", KEY)], timeout=20)
        assert code(message("CheckResponse").FromString(answer)) == 0
        context = authority().client()
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=context)
        asked = Http2Client(reader, writer)
        for scheme in ("https", "http"):
            more: dict[str, Any] = {"method": "POST", "body": frame(MESSAGE), "scheme": scheme}
            assert code(told(await asked.ask(CHECK, *HEAD, **more))) == 0
        writer.close()


async def test_a_health_check_is_answered_beyond_the_limit_of_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with grpc_door(tmp_path) as door:
        monkeypatch.setattr(door.shared.connections, "most", 0)
        assert await door.call(b"", method=HEALTH) == b"\x08\x01"
        with pytest.raises(grpc.aio.AioRpcError):
            await door.call(MESSAGE, KEY)
        assert await door.records() == []
