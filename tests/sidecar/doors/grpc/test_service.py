"""What a gRPC check door answers: the tables of `INTEGRATIONS.md`, The gRPC check door,
asked by a client of grpcio's."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import orjson
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.ground.keys import make_key
from sidecar.doors.grpc import check_messages
from sidecar.doors.grpc.service import MAX_MESSAGE, CheckService
from sidecar.http.grpc import wire
from sidecar.settings.sections import Door, DoorAgent, DoorHeaders
from sidecar.spool import SpoolFull
from tests.sidecar.doors.grpc.envoy_messages import message
from tests.sidecar.doors.grpc.grpc_setup import (
    CHECK,
    HEALTH,
    KEY,
    LOCAL,
    GrpcDoor,
    code,
    grpc_door,
    headers,
    publish_key,
)
from tests.sidecar.doors.grpc.test_messages import http
from tests.support.proxy import policy

OTHER_KEY = make_key(b"other".ljust(32))
SCROLL = "/collections/contracts/points/scroll"
JSON = {"content-type": "application/json"}
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"find","arguments":{}}}'
REMOVED = [
    "x-api-key", "x-sluice-user", "x-sluice-session", "x-sluice-task", "x-sluice-sensitivity",
]  # fmt: skip


def metadata(answer: Any) -> dict[str, str]:
    return {name: value.string_value for name, value in answer.dynamic_metadata.fields.items()}


async def test_an_allowed_request_passes_with_its_event(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        answer = await door.check(http())
        [record] = await door.records()
        assert (record["source_type"], record["source_id"]) == ("edge", "rest://kb/a")
        [whole] = await door.sidecar.records()
        event = whole["eid"]
        assert code(answer) == 0
        assert headers(answer) == {"x-sluice-event-id": event}
        [option] = answer.ok_response.headers
        assert option.append_action == 2  # overwrites
        assert list(answer.ok_response.headers_to_remove) == REMOVED
        assert metadata(answer) == {
            "decision": "ALLOW",
            "event_id": event,
            "policy_name": "analysts-read",
            "check": "none",
        }


async def test_a_denied_request_ends_with_the_reason(tmp_path: Path) -> None:
    async with grpc_door(tmp_path, policy(allowed_sources=("rest://kb/b",))) as door:
        answer = await door.check(http())
        [record] = await door.sidecar.records()
        assert code(answer) == 7
        denied = answer.denied_response
        body = orjson.loads(denied.body)
        assert denied.status.code == body["code"] == 403
        assert headers(answer) == {
            "content-type": "application/json",
            "x-sluice-decision": "DENY",
            "x-sluice-event-id": record["eid"],
        }
        assert body["decision"]["event_id"] == record["eid"]
        assert body["decision"]["reason"] == body["message"]
        assert metadata(answer)["decision"] == "DENY"
        assert metadata(answer)["check"] == "source"


async def test_a_key_is_checked_again_at_each_check(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        request = http().SerializeToString()
        for keys, expected in (
            ((), (16, 401)),
            ((OTHER_KEY,), (7, 403)),
            ((KEY, KEY), (7, 403)),
            ((KEY,), (0, 0)),
        ):
            answer = message("CheckResponse").FromString(await door.call(request, *keys))
            assert (code(answer), answer.denied_response.status.code) == expected
            if code(answer):
                assert "decision" not in orjson.loads(answer.denied_response.body)
                assert headers(answer) == {"content-type": "application/json"}
        publish_key(door.sidecar, scope="read")
        assert code(await door.check(http())) == 7
        publish_key(door.sidecar)
        assert code(await door.check(http())) == 0
        publish_key(door.sidecar, expires_at=1)
        assert code(await door.check(http())) == 7
        assert len(await door.records()) == 2


async def test_the_checked_request_s_own_key_is_never_used(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        request = http(headers={"x-api-key": KEY, "authorization": f"Bearer {KEY}"})
        answer = message("CheckResponse").FromString(await door.call(request.SerializeToString()))
        assert code(answer) == 16
        assert code(await door.check(request, OTHER_KEY)) == 7
        assert await door.records() == []


async def test_a_door_without_a_key_uses_the_sidecars_own(tmp_path: Path) -> None:
    settings = Door("edge", "envoy_grpc", "kb", LOCAL, key="none", agent=DoorAgent(None, "analyst"))
    async with grpc_door(tmp_path, settings=settings) as door:
        for keys in ((), (OTHER_KEY,)):
            answer = await door.call(http().SerializeToString(), *keys)
            assert code(message("CheckResponse").FromString(answer)) == 0


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x0a\x03abc", b"\x0a\x00", b"\0" * 100])
async def test_an_unreadable_message_is_a_recorded_denial(tmp_path: Path, data: bytes) -> None:
    async with grpc_door(tmp_path, mode="report") as door:
        answer = message("CheckResponse").FromString(await door.call(data, KEY))
        assert (code(answer), answer.denied_response.status.code) == (7, 403)
        assert metadata(answer)["policy_name"] == "unreadable_request"
        assert metadata(answer)["check"] == "unreadable_request"
        [record] = await door.records()
        assert (record["decision"], record["source_type"]) == ("DENY", "edge")


async def test_without_a_message_there_is_a_recorded_denial(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        called: Any = door.channel.stream_unary(CHECK)
        data = await called(iter([]), metadata=(("x-api-key", KEY),), timeout=20)
        assert metadata(message("CheckResponse").FromString(data))["check"] == "unreadable_request"
        assert len(await door.records()) == 1


async def test_no_message_is_awaited_without_a_valid_key(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        for key, expected in (("", 16), (OTHER_KEY, 7)):
            # The call never sends its message, for which the door would wait for 10 s.
            called: Any = door.channel.stream_unary(CHECK)
            call = called(metadata=(("x-api-key", key),), timeout=8)
            assert code(message("CheckResponse").FromString(await call)) == expected
        large = http(raw_body=b"x" * (15 << 20)).SerializeToString()
        assert code(message("CheckResponse").FromString(await door.call(large))) == 16


async def test_a_spool_that_takes_nothing_is_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with grpc_door(tmp_path) as door:

        def full(*_: Any, **__: Any) -> None:
            raise SpoolFull

        monkeypatch.setattr(door.sidecar.spool, "put_together", full)
        for data in (http().SerializeToString(), b"\xff"):
            answer = message("CheckResponse").FromString(await door.call(data, KEY))
            assert (code(answer), answer.denied_response.status.code) == (14, 503)
            assert "decision" not in orjson.loads(answer.denied_response.body)
            assert not answer.HasField("dynamic_metadata")


async def test_an_unexpected_error_is_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with grpc_door(tmp_path) as door:

        def broken(*_: Any) -> None:
            raise RuntimeError("a secret of ours")

        for owner, name in ((door.judgement, "judge"), (CheckService, "answer")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, broken)
                answer = await door.check(http())
            assert (code(answer), answer.denied_response.status.code) == (14, 503)
            assert "secret" not in answer.denied_response.body
            assert "a secret of ours" in caplog.text
            caplog.clear()


async def test_a_reported_denial_passes_with_a_mark(tmp_path: Path) -> None:
    async with grpc_door(tmp_path, policy(allowed_sources=("x",)), mode="report") as door:
        answer = await door.check(http())
        assert code(answer) == 0
        assert headers(answer)["x-sluice-decision"] == "DENY"
        assert metadata(answer)["decision"] == "DENY"


async def test_an_open_route_passes_without_an_event(tmp_path: Path) -> None:
    async with grpc_door(tmp_path, kind="chroma") as door:
        answer = await door.check(http(path="/api/v2/heartbeat"))
        assert code(answer) == 0
        assert headers(answer) == {}
        assert list(answer.ok_response.headers_to_remove) == [*REMOVED, "x-sluice-event-id"]
        assert await door.records() == []


async def test_a_denied_mcp_request_keeps_its_session(tmp_path: Path) -> None:
    async with grpc_door(tmp_path, policy(allowed_sources=("x",)), kind="mcp") as door:
        request = http(method="POST", path="/mcp", raw_body=CALL, size=len(CALL), headers=JSON)
        answer = await door.check(request)
        body = orjson.loads(answer.denied_response.body)
        assert (code(answer), answer.denied_response.status.code) == (7, 200)
        assert (body["id"], body["error"]["data"]["decision"]) == (7, "DENY")
        assert headers(answer)["x-sluice-event-id"] == body["error"]["data"]["event_id"]
        # A notification has no id, and a body that can't be read has none that we know.
        for raw in (b'{"jsonrpc":"2.0","method":"tools/call"}', b"{", b""):
            request = http(method="POST", path="/mcp", raw_body=raw, size=len(raw), headers=JSON)
            answer = await door.check(request)
            assert (code(answer), answer.denied_response.status.code) == (7, 403)
            assert orjson.loads(answer.denied_response.body)["decision"]["decision"] == "DENY"


async def test_headers_of_the_gateway_take_precedence(tmp_path: Path) -> None:
    names = DoorHeaders(task="X-Task")
    settings = Door("edge", "envoy_grpc", "kb", LOCAL, headers=names)
    async with grpc_door(tmp_path, settings=settings) as door:
        request = http(headers={"x-task": "a,b", "x-sluice-task": "c"})
        answer = await door.check(request)
        assert metadata(answer)["policy_name"] == "unreadable_request"
        request.attributes.context_extensions["sluice_task"] = "review"
        request.attributes.context_extensions["sluice_role"] = "admin"
        assert code(await door.check(request)) == 0
        assert [each.get("task_type") for each in await door.records()] == [None, "review"]


@pytest.mark.parametrize("name", ["user", "session", "task", "sensitivity"])
async def test_a_value_with_a_comma_is_unreadable_as_it_may_be_a_repetition(
    tmp_path: Path, name: str
) -> None:
    async with grpc_door(tmp_path) as door:
        joined = http(headers={f"x-sluice-{name}": "high,high"})
        answer = await door.check(joined)
        assert metadata(answer)["policy_name"] == "unreadable_request"
        assert "encode_raw_headers" in orjson.loads(answer.denied_response.body)["message"]
        raw = http()
        listed = raw.attributes.request.http.header_map.headers
        listed.add(key=f"x-sluice-{name}", raw_value=b"high")
        if name != "session":  # a new one is claimed, and no control API answers here
            assert code(await door.check(raw)) == 0
        listed.add(key=f"x-sluice-{name}", raw_value=b"high")
        answer = await door.check(raw)
        assert metadata(answer)["policy_name"] == "unreadable_request"


async def test_a_comma_in_a_raw_header_is_a_comma(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        request = http()
        listed = request.attributes.request.http.header_map.headers
        listed.add(key="x-sluice-task", raw_value=b"a,b")
        assert code(await door.check(request)) == 0
        assert [each["task_type"] for each in await door.records()] == ["a,b"]


@pytest.mark.parametrize(
    ("stated", "members", "reason"),
    [
        ({}, {}, "with_request_body"),
        ({"x-envoy-auth-partial-body": "true"}, {"raw_body": b"{}"}, "max_request_bytes"),
        ({"content-length": "3"}, {"raw_body": b"{}"}, "max_request_bytes"),
        ({"content-length": "1"}, {"raw_body": b"{}"}, "max_request_bytes"),
        ({"content-length": "2,2"}, {"raw_body": b"{}"}, "max_request_bytes"),
        ({}, {"raw_body": b"{}", "size": 3}, "max_request_bytes"),
        # Nothing says that it is whole.
        ({}, {"raw_body": b"{}"}, "max_request_bytes"),
        # So agentgateway describes a part; the flag may be its client's.
        ({}, {"raw_body": b"{}", "size": -1}, "max_request_bytes"),
        ({"x-envoy-auth-partial-body": "false"}, {"raw_body": b"{}", "size": -1}, "max_request_b"),
        ({}, {"raw_body": b" " * (1 << 20) + b"{}"}, "larger than 1048576"),
    ],
)
async def test_a_body_that_decides_must_be_whole(
    tmp_path: Path, stated: dict[str, str], members: dict[str, Any], reason: str
) -> None:
    async with grpc_door(tmp_path, kind="qdrant") as door:
        request = http(method="POST", path=SCROLL, headers={**JSON, **stated}, **members)
        answer = await door.check(request)
        assert metadata(answer)["policy_name"] == "unreadable_request"
        assert reason in orjson.loads(answer.denied_response.body)["message"]


@pytest.mark.parametrize("name", ["body", "raw_body"])
async def test_a_whole_body_decides(tmp_path: Path, name: str) -> None:
    async with grpc_door(tmp_path, kind="mcp") as door:
        members = {name: CALL if name == "raw_body" else CALL.decode(), "size": len(CALL)}
        stated = {"content-length": str(len(CALL)), "x-envoy-auth-partial-body": "false"}
        request = http(method="POST", path="/mcp", headers={**JSON, **stated}, **members)
        assert code(await door.check(request)) == 0


async def test_a_body_of_megabytes_is_a_denial_and_no_failed_call(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        request = http(raw_body=b"x" * ((2 << 20) - 200))
        assert metadata(await door.check(request))["policy_name"] == "unreadable_request"


@pytest.mark.parametrize("form", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_compressed_message_is_inflated_within_the_limit(
    tmp_path: Path, form: grpc.Compression
) -> None:
    async with grpc_door(tmp_path) as door:
        call: Any = door.channel.unary_unary(CHECK)
        for request, expected in ((http(), 0), (http(raw_body=b"x" * MAX_MESSAGE), 7)):
            more = {"metadata": [("x-api-key", KEY)], "compression": form, "timeout": 20}
            answer = await call(request.SerializeToString(), **more)
            assert code(message("CheckResponse").FromString(answer)) == expected
        assert "larger than 2097152 bytes" in (await door.records())[1]["reason"]


async def test_a_message_that_is_too_large_is_a_recorded_denial(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        for size in (MAX_MESSAGE, 10 << 20):
            assert code(await door.check(http(raw_body=b"x" * size))) == 7
        for record in await door.records():
            assert (record["decision"], record["policy_name"]) == ("DENY", "unreadable_request")
            assert "more than 2097152 bytes" in record["reason"]
        assert len(await door.records()) == 2
        assert (await door.check(http())).status.code == 0, "the door goes on"


async def test_answers_are_counted_by_code(tmp_path: Path) -> None:
    async with grpc_door(tmp_path, policy(allowed_sources=("rest://kb/b",))) as door:
        await door.check(http(path="/b"))
        await door.check(http(path="/b"))
        await door.check(http())
        await door.call(http().SerializeToString())
        [family] = door.sidecar.metrics.grpc_checks.collect()
        counted = {sample.labels["code"]: sample.value for sample in family.samples}
        assert family.name == "sluice_grpc_checks"
        assert counted == {"0": 2, "7": 1, "16": 1}


async def test_other_methods_are_unimplemented(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        for method in (
            "/envoy.service.auth.v3.Authorization/Other",
            "/envoy.service.auth.v2.Authorization/Check",
            "/grpc.health.v1.Health/Watch",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await door.call(b"", KEY, method=method)
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_follows_readiness(tmp_path: Path) -> None:
    async with grpc_door(tmp_path) as door:
        for ready, status in ((True, 1), (False, 2)):
            door.ready = ready
            answer = await door.call(wire.bytes_field(1, b""), method=HEALTH)
            assert check_messages.read(answer, {1: wire.VARINT}) == {1: [status]}


def _about(data: st.DataObject) -> Any:
    """A CheckRequest of any members, some of which make sense."""
    words = st.sampled_from(["GET", "POST", "/a", "/mcp", "/..", "{}", "kb", "é", "\0", "a,b", ""])
    texts = st.one_of(words, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    request = message("CheckRequest")()
    about = request.attributes.request.http
    for name in ("method", "path", "host", "query", "fragment", "body"):
        if data.draw(st.booleans()):
            setattr(about, name, data.draw(texts))
    about.size = data.draw(st.sampled_from([0, -1, 2, -(1 << 63), (1 << 63) - 1]))
    about.raw_body = data.draw(st.one_of(st.sampled_from([b"", CALL]), st.binary(max_size=20)))
    names = st.sampled_from(
        [
            ":path", "host", "connection", "content-length", "transfer-encoding", "content-type",
            "x-sluice-user", "x-sluice-sensitivity", "baggage", "x-envoy-auth-partial-body",
            "traceparent", "x-api-key", "a b", "", "\n",
        ]
    )  # fmt: skip
    values = st.one_of(texts, st.sampled_from(["1", "application/json", "chunked", "close", "\r"]))
    about.headers.update(data.draw(st.dictionaries(names, values, max_size=4)))
    for name, value in data.draw(st.lists(st.tuples(names, values), max_size=3)):
        about.header_map.headers.add(key=name, raw_value=value.encode())
    extensions = st.sampled_from(["sluice_user", "sluice_session", "sluice_task", "x"])
    request.attributes.context_extensions.update(
        data.draw(st.dictionaries(extensions, texts, max_size=2))
    )
    return request


@pytest.mark.deep(stands_in="test_an_unreadable_message_is_a_recorded_denial")
@pytest.mark.parametrize("kind", ["rest", "mcp", "qdrant", "s3"])
def test_no_check_fails_its_call(tmp_path: Path, kind: str) -> None:
    """Whatever arrives: an answer, one record for each that decided, and an ALLOW only with its
    record."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        context = grpc_door(tmp_path, kind=kind)

        async def start() -> GrpcDoor:
            return await context.__aenter__()

        async def stop() -> None:
            await context.__aexit__(None, None, None)

        door = loop.run(start())

        @given(st.data())
        @settings(suppress_health_check=[HealthCheck.too_slow])
        def check(data: st.DataObject) -> None:
            request = _about(data).SerializeToString()
            if data.draw(st.integers(0, 3)) == 0:
                request = request[: data.draw(st.integers(0, len(request)))]
            answer = message("CheckResponse").FromString(loop.run(door.call(request, KEY)))
            assert code(answer) in (0, 7)
            assert answer.HasField("ok_response") is (code(answer) == 0)

        try:
            check()
        finally:
            loop.run(stop())
