"""Section 1 of the contract on the sidecar's port: bad input gets its status and error body, and
leaves no record."""

import asyncio
import contextlib
import gzip
import re
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies import __version__
from policies.ground.listen_address import ListenAddress
from sidecar.http.request_body import MAX_BODY
from tests import waiting
from tests.sidecar.fake_control_api import EVALUATE_KEY, READ_KEY, SIDECAR_KEY, fake_control_api
from tests.sidecar.stand import EVALUATE, Stand, ask, sidecar
from tests.sidecar.wire import GOOD, answer_of, connect, head, raw, request, with_key

PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
# The reason phrases that RFC 9110 changed; Python 3.13 followed it.
FORMER = {413: "Request Entity Too Large", 422: "Unprocessable Entity"}


def is_error(status: int, body: bytes) -> dict[str, Any]:
    """Checks the form of the error body, the same for every status."""
    told: dict[str, Any] = orjson.loads(body)
    assert told["code"] == status
    assert told["error"] in (PHRASES[status], FORMER.get(status))
    assert isinstance(told["message"], str)
    assert told["message"]
    assert set(told) <= {"error", "message", "code", "details"}
    assert isinstance(told.get("details", ""), str)
    return told


async def refused(
    stand: Stand, status: int, method: str = "POST", path: str = EVALUATE, **sent: Any
) -> dict[str, Any]:
    """The error body of a request that must get this status, after checking the common headers."""
    answer = await stand.call(method, path, **sent)
    body = answer.body
    assert answer.status == status, body
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "sluice"
    assert answer.headers["X-Request-ID"]
    return is_error(status, body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":1}}', "not JSON"),
        (b"nonsense", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"NaN", "not JSON"),
        (GOOD.replace(b'"ann@example.com"', b"NaN"), "not JSON"),
        (GOOD.replace(b'"ann@example.com"', b"Infinity"), "not JSON"),
        (GOOD.replace(b"ann@example.com", b"\\ud800"), "not JSON"),
        (GOOD.replace(b"ann@example.com", b"\xff\xfe"), "not JSON"),
        (GOOD.replace(b"ann@example.com", b"\xed\xa0\x80"), "not JSON"),
        (GOOD.replace(b"ann@example.com", b"a\nb"), "not JSON"),
        (gzip.compress(GOOD), "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
    ],
)
async def test_a_malformed_body_is_400(tmp_path: Path, body: bytes, says: str) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            assert says in (await refused(stand, 400, body=body))["message"]
            assert await stand.records() == []


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/jsonp",
        "",
        "application/xml",
    ],
)
async def test_a_content_type_other_than_json_is_400(tmp_path: Path, content_type: str) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await refused(stand, 400, body=GOOD, headers={"Content-Type": content_type})
            assert await stand.records() == []


@pytest.mark.parametrize(
    "content_type",
    [
        b"Content-Type: application/json\r\n",
        b"Content-Type: application/json; charset=utf-8\r\n",
        b"Content-Type: Application/JSON;charset=UTF-8\r\n",
        b"",
    ],
)
async def test_a_json_or_missing_content_type_is_read_as_json(
    tmp_path: Path, content_type: bytes
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            status, _, body = await raw(stand, request(content_type + with_key(), GOOD))
            assert status == 200
            assert orjson.loads(body)["decision"] == "ALLOW"


LONG = "x" * 257


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"agent_role": None}, ["agent_role"]),
        ({"user_id": None, "source_id": None}, ["user_id", "source_id"]),
        ({"sensitivity_level": None}, ["sensitivity_level"]),
        ({"sensitivity_level": "High"}, ["sensitivity_level"]),
        ({"sensitivity_level": 3}, ["sensitivity_level"]),
        ({"agent_role": ""}, ["agent_role"]),
        ({"agent_role": LONG}, ["agent_role"]),
        ({"user_id": "a\u0000b"}, ["user_id"]),
        ({"user_id": "a\u0085b"}, ["user_id"]),
        ({"source_id": 7}, ["source_id"]),
        ({"source_id": ["contracts"]}, ["source_id"]),
        ({"session_id": ""}, ["session_id"]),
        ({"session_id": {}}, ["session_id"]),
        ({"task_type": LONG}, ["task_type"]),
        ({"agent_id": True}, ["agent_id"]),
        ({"query": 1}, ["query"]),
        ({"query": "x" * (64 * 1024 + 1)}, ["query"]),
        ({"query": "é" * (32 * 1024 + 1)}, ["query"]),
        ({"source_type": "Chroma DB"}, ["source_type"]),
        ({"context_hash": "abc"}, ["context_hash"]),
        (
            {"agent_role": 1, "user_id": 2, "source_id": 3, "sensitivity_level": 4, "query": 5},
            ["agent_role", "user_id", "source_id", "sensitivity_level", "query"],
        ),
    ],
)
async def test_a_body_that_breaks_the_schema_is_422_with_every_field_named(
    tmp_path: Path, changed: dict[str, Any], fields: list[str]
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            told = await refused(stand, 422, body=orjson.dumps(ask(**changed)))
            assert [line.split(":")[0] for line in told["details"].splitlines()] == fields
            assert await stand.records() == []


async def test_unknown_fields_are_ignored_and_nulls_are_absent(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            body = {**ask(), "denied_sources": [], "session_id": None, "query": None}
            answer = await stand.call("POST", EVALUATE, orjson.dumps(body))
            assert answer.json()["decision"] == "ALLOW"


@pytest.mark.parametrize("path", [EVALUATE, "/v1/", "/v1/nothing", "/v1/context/evaluate/batch"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_without_a_key_every_path_under_v1_is_401(
    tmp_path: Path, path: str, method: str
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await refused(stand, 401, method, path, key=None)
            await refused(stand, 401, method, path, key="")


@pytest.mark.parametrize(
    "key", ["slc_wrong", EVALUATE_KEY + "x", EVALUATE_KEY.lower(), "ÿ" * 53, READ_KEY, SIDECAR_KEY]
)
async def test_a_bad_key_or_scope_is_403_before_the_body_is_judged(
    tmp_path: Path, key: str
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            told = await refused(stand, 403, body=b"{", key=key)
            assert key not in str(told)
            assert await stand.records() == []


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/V1/context/evaluate", "/nothing", "/health/", "//health", "/favicon.ico"]
)
async def test_an_unknown_path_outside_v1_is_404(tmp_path: Path, path: str) -> None:
    async with fake_control_api() as control, sidecar(tmp_path, control, synced=False) as stand:
        status, _, body = await raw(stand, b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
        assert status == 404
        is_error(404, body)


async def test_an_unknown_path_under_v1_is_404_with_a_key_of_any_scope(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            for path in ("/v1/nothing", EVALUATE + "/", EVALUATE + "%2f", "/v1//context/evaluate"):
                await refused(stand, 404, "POST", path, body=GOOD)
                await refused(stand, 404, "GET", path, key=READ_KEY)


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        (EVALUATE, "GET", "POST"),
        (EVALUATE, "PUT", "POST"),
        (EVALUATE, "OPTIONS", "POST"),
        ("/health", "POST", "GET, HEAD"),
        ("/health/ready", "DELETE", "GET, HEAD"),
        ("/metrics", "POST", "GET, HEAD"),
    ],
)
async def test_another_method_is_405_and_lists_the_allowed_ones(
    tmp_path: Path, path: str, method: str, allowed: str
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await refused(stand, 405, method, path)
            answer = await stand.call(method, path)
            assert answer.headers["Allow"] == allowed


async def test_a_body_over_the_limit_is_413_however_it_comes(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            at_most = GOOD[:-1] + b" " * (MAX_BODY - len(GOOD)) + b"}"
            assert (await stand.call("POST", EVALUATE, at_most)).status == 200
            await refused(stand, 413, body=at_most + b" ")
            told = b"Content-Length: %d\r\n" % (50 * MAX_BODY)
            status, _, body = await raw(stand, head(told + with_key()))
            assert status == 413
            is_error(413, body)
            chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            chunked = head(b"Transfer-Encoding: chunked\r\n" + with_key()) + chunk * 18
            status, _, body = await raw(stand, chunked)
            assert status == 413
            is_error(413, body)
            assert len(await stand.records()) == 1
            assert (await stand.evaluate())["decision"] == "ALLOW"


async def test_explain_and_other_queries_change_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            answer = await stand.call("POST", EVALUATE + "?a=b&c", GOOD)
            assert answer.status == 200


async def test_a_response_has_the_headers_of_the_contract(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            answer = await stand.call("POST", EVALUATE, GOOD)
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Server"] == "sluice"
            assert parsedate_to_datetime(answer.headers["Date"]).tzname() == "UTC"
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert len([name for name in answer.headers if name == "Content-Length"]) == 1


@pytest.mark.parametrize("given", ["a", "3fa85f64-5717-4562-b3fc-2c963f66afa6", "x" * 128, "~!"])
async def test_a_request_id_is_echoed(tmp_path: Path, given: str) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            for path in (EVALUATE, "/health", "/nothing"):
                answer = await stand.call("POST", path, GOOD, headers={"X-Request-ID": given})
                assert answer.headers["X-Request-ID"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\tb"])
async def test_a_request_id_that_could_harm_a_log_is_replaced(tmp_path: Path, given: str) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            answer = await stand.call("POST", EVALUATE, GOOD, headers={"X-Request-ID": given})
            assert re.fullmatch(r"[0-9a-f]{8}-\d+", answer.headers["X-Request-ID"])
            another = await stand.call("POST", EVALUATE, GOOD)
            assert another.headers["X-Request-ID"] != answer.headers["X-Request-ID"]


async def test_an_internal_error_is_500_with_only_the_request_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret of the house")

    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            monkeypatch.setattr(stand.parts.enforcer, "decide", broken)
            answer = await stand.call("POST", EVALUATE, GOOD, headers={"X-Request-ID": "r-17"})
            assert answer.status == 500
            assert "r-17" in is_error(500, answer.body)["message"]
            assert "secret" not in answer.text()
            assert [vars(each).get("request_id") for each in caplog.records if each.exc_info] == [
                "r-17"
            ]
            assert "secret of the house" in caplog.text


async def test_health_and_readiness_need_no_key_and_show_no_path(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        await control.stop()
        async with sidecar(tmp_path, control, synced=False) as stand:
            answer = await stand.call("GET", "/health", key=None)
            assert answer.status == 200
            assert answer.json() == {"status": "ok", "version": __version__}
            answer = await stand.call("GET", "/health/ready", key=None)
            assert answer.status == 503
            assert is_error(503, answer.body)["details"].startswith("policy_set: ")
            assert str(tmp_path) not in answer.text()
            await control.start()
            control.furnish()

            async def ready() -> bool:
                return (await stand.call("GET", "/health/ready", key=None)).status == 200

            await waiting.until_told("it is ready", ready)
            answer = await stand.call("GET", "/health/ready", key=None)
            assert answer.json() == {
                "status": "ready",
                "version": __version__,
                "policy_feed": "control",
            }


async def test_metrics_can_move_to_a_port_of_their_own(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        own = ListenAddress("127.0.0.1", 0)
        async with sidecar(tmp_path, control, metrics_listen=own) as stand:
            assert (await stand.call("GET", "/metrics", key=None)).status == 404
            stand.address = stand.ports[1].address
            assert (await stand.call("GET", "/metrics", key=None)).status == 200
            assert (await stand.call("GET", "/health", key=None)).status == 404


async def test_no_label_of_a_metric_contains_text_from_a_request(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await stand.evaluate()
            await stand.evaluate(source_id="payroll", user_id="marker-user")
            await stand.evaluate(agent_role="marker-role", agent_id="marker-agent")
            await stand.call("GET", "/marker-path", key="marker-key")
            text = (await stand.call("GET", "/metrics", key=None)).text()
            assert "marker" not in text
            assert "underwriting" not in text
            assert "default" not in re.sub(r"default_deny", "", text)
            sample = 'sluice_requests_total{operation="none",status="404"}'
            assert await stand.metric(sample) == 1
            assert await stand.metric("sluice_evaluate_seconds_count") == 3
            assert await stand.metric("sluice_policy_set_revision") == control.revision
            assert await stand.metric("sluice_spool_records") == 3
            assert await stand.metric("process_resident_memory_bytes") > 0


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
    async with fake_control_api() as control, sidecar(tmp_path, control, synced=False) as stand:
        reader, writer = await connect(stand)
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


async def test_a_chunked_body_is_read_like_any_other(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in GOOD)
            sent = head(b"Transfer-Encoding: chunked\r\n" + with_key()) + pieces + b"0\r\n\r\n"
            status, _, body = await raw(stand, sent)
            assert status == 200
            assert orjson.loads(body)["decision"] == "ALLOW"


@pytest.mark.parametrize("rest", [b"zz\r\n", b"5\r\nabcdefgh\r\n"])
async def test_a_chunked_body_that_breaks_is_400(tmp_path: Path, rest: bytes) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            writer.write(head(b"Transfer-Encoding: chunked\r\n" + with_key()) + b"1\r\n{\r\n")
            await waiting.turns()
            writer.write(rest)
            async with asyncio.timeout(20):
                status, _, body = await answer_of(reader)
            assert status == 400
            is_error(400, body)
            writer.close()
            assert await stand.records() == []


async def test_a_body_in_many_packets_is_awaited(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            sent = request(with_key(), GOOD)
            for at in range(0, len(sent), 40):
                writer.write(sent[at : at + 40])
                await waiting.turns(5)
            assert (await answer_of(reader))[0] == 200
            writer.close()


async def test_a_client_that_waits_for_100_gets_it(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            fields = b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(GOOD)
            writer.write(head(fields + with_key()))
            async with asyncio.timeout(20):
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                writer.write(GOOD)
                assert (await answer_of(reader))[0] == 200
            # Without a key, the request is refused before its body is read.
            reader, writer = await connect(stand)
            writer.write(head(fields))
            async with asyncio.timeout(20):
                assert (await answer_of(reader))[0] == 401
            writer.close()


async def test_a_body_that_does_not_arrive_is_408(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.http.request_body.BODY_SECONDS", 0.2)
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            writer.write(request(with_key(), GOOD)[:-5])
            async with asyncio.timeout(20):
                status, top, body = await answer_of(reader)
                assert status == 408
                assert b"Connection: close" in top
                is_error(408, body)
                assert await reader.read() == b""
            writer.close()
            assert await stand.records() == []


async def test_a_head_that_does_not_arrive_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.api.http_server.KEEPALIVE_SECONDS", 0.3)
    async with fake_control_api() as control, sidecar(tmp_path, control, synced=False) as stand:
        idle, _ = await connect(stand)
        slow, writer = await connect(stand)
        used, user = await connect(stand)
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


async def test_a_half_closed_client_still_gets_its_answer(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            writer.write(request(with_key(), GOOD))
            writer.write_eof()
            async with asyncio.timeout(20):
                status, _, body = await answer_of(reader)
                assert status == 200
                assert orjson.loads(body)["decision"] == "ALLOW"
                assert await reader.read() == b""
            writer.close()


async def test_a_client_that_closes_in_the_middle_of_a_body_leaves_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            for half in (request(with_key(), GOOD)[:-5], head(with_key())[:-9]):
                reader, writer = await connect(stand)
                writer.write(half)
                await waiting.turns()
                writer.write_eof()
                async with asyncio.timeout(20):
                    await reader.read()
                writer.close()
            assert await stand.records() == []


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
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
            assert len(await stand.records()) == count


async def test_a_refused_upgrade_or_tunnel_ends_the_connection(tmp_path: Path) -> None:
    """RFC 9931: the bytes after it are not a request of this client."""
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            smuggled = request(with_key(), GOOD)
            upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            for opening in (
                b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
                b"GET /health HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n",
                b"GET /nothing HTTP/1.1\r\nHost: a\r\n" + upgrade + b"\r\n",
            ):
                reader, writer = await connect(stand)
                writer.write(opening + smuggled)
                async with asyncio.timeout(20):
                    everything = await reader.read()
                assert everything.count(b"HTTP/1.1 ") == 1, everything
                writer.close()
            assert await stand.records() == []


async def test_an_http_1_0_client_is_disconnected_unless_it_asks_for_keep_alive(
    tmp_path: Path,
) -> None:
    async with fake_control_api() as control, sidecar(tmp_path, control, synced=False) as stand:
        reader, writer = await connect(stand)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(20):
            assert b"Connection: close" in (await answer_of(reader))[1]
            assert await reader.read() == b""
        reader, writer = await connect(stand)
        for _ in range(2):
            writer.write(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            async with asyncio.timeout(20):
                assert b"Connection: keep-alive" in (await answer_of(reader))[1]
        writer.close()


async def test_head_is_get_without_the_body(tmp_path: Path) -> None:
    async with fake_control_api() as control, sidecar(tmp_path, control, synced=False) as stand:
        reader, writer = await connect(stand)
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            everything = await reader.read()
        length = re.findall(rb"Content-Length: (\d+)", everything)
        assert len(set(length)) == 1
        assert everything.count(b'"status"') == 1
        writer.close()


async def test_a_refusal_can_be_read_while_the_body_still_arrives(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            reader, writer = await connect(stand)
            writer.write(head(b"Content-Length: 300000\r\n") + b" " * 1000)
            async with asyncio.timeout(20):
                assert (await answer_of(reader))[0] == 401
                writer.write(b" " * 299_000)
                writer.write(request(with_key(), GOOD))
                assert (await answer_of(reader))[0] == 200
            writer.close()


async def test_a_client_that_does_not_read_stops_being_read(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            _reader, writer = await connect(stand)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            sent = request(with_key(), GOOD)
            taken = 0
            try:
                async with asyncio.timeout(1):
                    while taken < 200_000:
                        writer.write(sent * 100)
                        await writer.drain()
                        taken += 100
            except TimeoutError:
                pass
            assert taken < 200_000
            writer.transport.abort()
            assert (await stand.evaluate())["decision"] == "ALLOW"


async def test_an_explanation_is_the_same_as_the_control_apis(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            path = f"{EVALUATE}?explain=true"
            allowed = (await stand.call("POST", path, orjson.dumps(ask()))).json()
            assert list(allowed) == ["decision", "policy_name", "reason", "event_id", "explain"]
            assert allowed["explain"]["nearest_miss"] is None
            denied = (await stand.call("POST", path, orjson.dumps(ask(source_id="none")))).json()
            assert denied["explain"]["nearest_miss"]["check"] == "source"
            outcomes = [check["outcome"] for check in denied["explain"]["checks"]]
            assert outcomes[-2:] == ["failed", "not_reached"]
            plain = await stand.call("POST", f"{EVALUATE}?explain=false", orjson.dumps(ask()))
            assert "explain" not in plain.json()
            for query in ("explain=1", "explain=true&explain=true"):
                await refused(stand, 422, path=f"{EVALUATE}?{query}", body=orjson.dumps(ask()))


@pytest.mark.parametrize(
    ("semantics", "decided"), [("all", 3), ("stop_on_deny", 2), ("stop_on_allow", 1)]
)
async def test_a_batch_is_decided_in_order(tmp_path: Path, semantics: str, decided: int) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            items = [ask(), ask(source_id="none"), ask()]
            body = orjson.dumps({"items": items, "semantics": semantics})
            results = (await stand.call("POST", f"{EVALUATE}/batch", body)).json()["results"]
            expected = ["ALLOW", "DENY", "ALLOW"][:decided]
            assert [each["decision"] for each in results] == expected
            assert len({each["event_id"] for each in results}) == decided
            told = await refused(
                stand, 422, path=f"{EVALUATE}/batch", body=orjson.dumps({"items": [ask(), 1]})
            )
            assert told["details"].startswith("items.1.retrieval")
