"""`POST /access/v1/evaluation`: what it answers and records, and every fault of a request."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from sidecar.spool import SpoolSettings
from tests.sidecar.authzen.questions import EVALUATION, EVALUATIONS, question
from tests.sidecar.error_bodies import is_error
from tests.sidecar.wire import answer_of, connect, with_key
from tests.support.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    READ_KEY,
    ROLE,
    SIDECAR_KEY,
    FakeControlApi,
    fake_control_api,
)
from tests.support.sidecar import Answer, FaultyDisk, RunningSidecar, running_sidecar
from tests.support.waiting import until_async

ROUTES = [EVALUATION, EVALUATIONS]


async def ask(running: RunningSidecar, *, path: str = EVALUATION, **changed: Any) -> Answer:
    return await running.call("POST", path, orjson.dumps(question(**changed)))


async def decisions(running: RunningSidecar) -> list[dict[str, Any]]:
    return [each for each in await running.records() if each["kind"] == "decision"]


@pytest.mark.parametrize("path", ROUTES)
async def test_an_allowed_question_is_answered_and_recorded(
    sidecar: RunningSidecar, path: str
) -> None:
    answer = await ask(sidecar, path=path)
    assert answer.status == 200
    told = answer.json()
    assert told == {
        "decision": True,
        "context": {
            "event_id": told["context"]["event_id"],
            "policy_name": "underwriting",
            "reason": told["context"]["reason"],
        },
    }
    assert answer.headers["X-Sluice-Event-Id"] == told["context"]["event_id"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Type"] == "application/json"
    [record] = await decisions(sidecar)
    assert record["eid"] == told["context"]["event_id"]
    assert record["pub"]["request"] == {
        "agent_id": AGENT,
        "agent_role": ROLE,
        "source_id": "contracts",
        "sensitivity_level": "high",
        "source_type": "authzen",
    }


async def test_a_denial_has_its_reason_for_the_admin_and_a_plain_one_for_the_user(
    sidecar: RunningSidecar,
) -> None:
    answer = await ask(sidecar, resource={"type": "source", "id": "payroll"})
    assert answer.status == 200
    told = answer.json()
    context = told["context"]
    assert told["decision"] is False
    assert context.keys() == {"event_id", "policy_name", "reason", "reason_admin", "reason_user"}
    assert context["reason_admin"] == {"403": context["reason"]}
    assert context["reason_user"] == {"403": "access denied"}
    [record] = await decisions(sidecar)
    assert record["eid"] == context["event_id"] == answer.headers["X-Sluice-Event-Id"]
    assert record["pub"]["response"]["decision"] == "DENY"
    assert record["pub"]["response"]["policy_name"] == context["policy_name"]


async def test_a_question_that_cannot_be_mapped_is_a_recorded_denial(
    sidecar: RunningSidecar,
) -> None:
    answer = await ask(sidecar, action={"name": "delete"})
    context = answer.json()["context"]
    assert answer.json()["decision"] is False
    assert context["policy_name"] == "unmapped_request"
    assert "`authzen.actions`" in context["reason"]
    [record] = await decisions(sidecar)
    assert record["eid"] == context["event_id"]
    assert record["pub"]["request"]["source_id"] == "authzen://unmapped"
    assert record["pub"]["request"]["agent_id"] == AGENT


async def test_unknown_members_are_ignored(sidecar: RunningSidecar) -> None:
    body = question(more={"a": [None]}, options={"evaluations_semantic": "x"})
    body["subject"] |= {"x": None}
    answer = await sidecar.call("POST", EVALUATION, orjson.dumps(dict(reversed(body.items()))))
    assert answer.json()["decision"] is True


async def test_the_role_of_a_registered_agent_counts_where_none_is_named(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    answer = await ask(sidecar, subject={"type": "agent", "id": AGENT})
    assert answer.json()["decision"] is True
    [record] = await decisions(sidecar)
    assert record["pub"]["request"]["agent_role"] == ROLE


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON ;a=b"],
)
async def test_json_is_taken_with_any_parameter(
    sidecar: RunningSidecar, path: str, content_type: str
) -> None:
    body = orjson.dumps(question())
    answer = await sidecar.call("POST", path, body, headers={"Content-Type": content_type})
    assert answer.json()["decision"] is True


def changed(path: tuple[str, ...], value: Any) -> bytes:
    """The question with another value at `path`; `...` removes it."""
    body = question()
    parent = body
    for each in path[:-1]:
        parent = parent[each]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return orjson.dumps(body)


FORMS: list[tuple[tuple[str, ...], Any, str]] = [
    (("subject",), ..., "`subject` is required"),
    (("subject",), None, "`subject` must be an object"),
    (("subject",), "alice", "`subject` must be an object"),
    (("subject",), [], "`subject` must be an object"),
    (("subject", "type"), ..., "`subject.type` is required"),
    (("subject", "type"), None, "`subject.type` must be a string"),
    (("subject", "type"), 1, "`subject.type` must be a string"),
    (("subject", "id"), ..., "`subject.id` is required"),
    (("subject", "id"), {}, "`subject.id` must be a string"),
    (("subject", "properties"), None, "`subject.properties` must be an object"),
    (("subject", "properties"), [], "`subject.properties` must be an object"),
    (("resource",), ..., "`resource` is required"),
    (("resource",), True, "`resource` must be an object"),
    (("resource", "type"), ..., "`resource.type` is required"),
    (("resource", "id"), None, "`resource.id` must be a string"),
    (("resource", "id"), ..., "`resource.id` is required"),
    (("resource", "properties"), "x", "`resource.properties` must be an object"),
    (("action",), ..., "`action` is required"),
    (("action",), "read", "`action` must be an object"),
    (("action", "name"), ..., "`action.name` is required"),
    (("action", "name"), 1.5, "`action.name` must be a string"),
    (("action", "properties"), 0, "`action.properties` must be an object"),
    (("context",), None, "`context` must be an object"),
    (("context",), [], "`context` must be an object"),
]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("member", "value", "message"), FORMS)
async def test_another_form_is_400_and_names_the_field(
    sidecar: RunningSidecar, path: str, member: tuple[str, ...], value: Any, message: str
) -> None:
    answer = await sidecar.call("POST", path, changed(member, value))
    assert answer.status == 400
    assert is_error(400, answer.body)["message"] == message
    assert await decisions(sidecar) == []


GOOD = orjson.dumps(question())
DEEP = b'{"a":' * 63 + b"1" + b"}" * 63


def with_context(value: bytes) -> bytes:
    """The question with raw bytes for a value in its context."""
    return orjson.dumps(question(context={"at": "@"})).replace(b'"@"', value)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b'"a"',
        GOOD + b"{}",
        b"\xef\xbb\xbf" + GOOD,
        GOOD.decode().encode("utf-16"),
        with_context(b'"\xff"'),
        with_context(b'"\xed\xa0\x80"'),
        with_context(rb'"\ud800"'),
        with_context(rb'"\udc00\ud800"'),
        with_context(b"NaN"),
        with_context(b"-Infinity"),
        with_context(b"1e400"),
        with_context(b"-1e400"),
        with_context(b"1" + b"0" * 400),
        with_context(b"01"),
        with_context(b'{"x":1,"x":1}'),
        with_context(b'{"x":":","x":1}'),
        with_context(b'{"\\u0078":1,"x":1}'),
        with_context(b'{"x" :1,"y":"a: \\":","x" :1}'),
        with_context(DEEP),
        b'{"subject":1,' + GOOD[1:],
        b'{"evaluations":[],"evaluations":[],' + GOOD[1:],
    ],
)
async def test_a_body_with_two_readings_is_400(
    sidecar: RunningSidecar, path: str, body: bytes
) -> None:
    answer = await sidecar.call("POST", path, body)
    assert answer.status == 400, answer.body
    is_error(400, answer.body)
    assert await decisions(sidecar) == []


@pytest.mark.parametrize(
    "value",
    [DEEP[5:-1], b"1e308", rb'"\ud83d\ude00"', b'{"x":"\\":","y":":"}', b"123456789012345678901"],
)
async def test_a_body_at_the_limit_is_read(sidecar: RunningSidecar, value: bytes) -> None:
    answer = await sidecar.call("POST", EVALUATION, with_context(value))
    assert answer.json()["decision"] is True


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "content_type", ["", "text/json", "application/x-www-form-urlencoded", "application/jsonx"]
)
async def test_another_content_type_is_400(
    sidecar: RunningSidecar, path: str, content_type: str
) -> None:
    answer = await sidecar.call("POST", path, GOOD, headers={"Content-Type": content_type})
    assert answer.status == 400
    message = is_error(400, answer.body)["message"]
    assert message == f"the content type is `{content_type}`; send `application/json`"


@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_over_a_mebibyte_is_413(sidecar: RunningSidecar, path: str) -> None:
    answer = await sidecar.call("POST", path, GOOD + b" " * (1 << 20))
    assert answer.status == 413
    is_error(413, answer.body)
    fits = GOOD + b" " * ((1 << 20) - len(GOOD))
    assert (await sidecar.call("POST", path, fits)).json()["decision"] is True


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({}, ""),
        ({"Authorization": "Basic YTpi"}, ""),
        ({"Authorization": f"Token {EVALUATE_KEY}"}, ""),
        ({"X-API-Key": "slc_wrong"}, ', error="invalid_token"'),
        ({"X-API-Key": SIDECAR_KEY}, ', error="invalid_token"'),
        ({"Authorization": "Bearer nothing"}, ', error="invalid_token"'),
        (
            {"X-API-Key": EVALUATE_KEY, "Authorization": f"Bearer {READ_KEY}"},
            ', error="invalid_token"',
        ),
    ],
)
async def test_without_a_valid_key_the_answer_is_401_with_the_challenge(
    sidecar: RunningSidecar, path: str, headers: dict[str, str], error: str
) -> None:
    answer = await sidecar.call("POST", path, b"{", key=None, headers=headers)
    assert answer.status == 401
    is_error(401, answer.body)
    assert answer.headers["WWW-Authenticate"] == f'Bearer realm="sluice"{error}'
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("path", ROUTES)
async def test_a_bearer_token_and_the_same_key_twice_are_taken(
    sidecar: RunningSidecar, path: str
) -> None:
    for headers in (
        {"Authorization": f"Bearer {EVALUATE_KEY}"},
        {"Authorization": f"bearer {EVALUATE_KEY}", "X-API-Key": EVALUATE_KEY},
    ):
        answer = await sidecar.call("POST", path, GOOD, key=None, headers=headers)
        assert answer.json()["decision"] is True


@pytest.mark.parametrize("path", ROUTES)
async def test_a_key_of_another_scope_is_403(sidecar: RunningSidecar, path: str) -> None:
    answer = await sidecar.call("POST", path, b"{", key=READ_KEY)
    assert answer.status == 403
    is_error(403, answer.body)
    assert "WWW-Authenticate" not in answer.headers
    assert await decisions(sidecar) == []


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_another_method_is_405(sidecar: RunningSidecar, path: str, method: str) -> None:
    answer = await sidecar.call(method, path, headers={"X-Request-ID": "r-1"})
    assert answer.status == 405
    is_error(405, answer.body)
    assert answer.headers["Allow"] == "POST"
    assert answer.headers["X-Request-ID"] == "r-1"
    assert (await sidecar.call(method, path, key=None)).status == 401


@pytest.mark.parametrize("path", ROUTES)
async def test_a_request_id_is_echoed_on_answers_and_errors(
    sidecar: RunningSidecar, path: str
) -> None:
    for body, status in ((GOOD, 200), (b"{", 400)):
        answer = await sidecar.call("POST", path, body, headers={"X-Request-ID": "a~!{}id"})
        assert (answer.status, answer.headers["X-Request-ID"]) == (status, "a~!{}id")


async def test_without_a_policy_set_the_answer_is_503(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.refuse_with = 500
        async with running_sidecar(tmp_path, control, synced=False) as running:
            for path in ROUTES:
                answer = await running.call("POST", path, GOOD)
                assert answer.status == 503
                is_error(503, answer.body)


@pytest.mark.parametrize("path", ROUTES)
async def test_a_question_that_cannot_be_recorded_is_refused_with_503(
    sidecar: RunningSidecar, disk: FaultyDisk, path: str
) -> None:
    disk.fails = True
    bodies = [GOOD, orjson.dumps(question(evaluations=[{}, {}]))]
    for body in bodies if path == EVALUATIONS else bodies[:1]:
        answer = await sidecar.call("POST", path, body)
        assert answer.status == 503
        is_error(503, answer.body)


@pytest.mark.deep(
    stands_in="tests/sidecar/test_recorder.py::test_if_not_even_a_denial_can_be_recorded_nothing_is_decided"
)
async def test_a_full_spool_denies_and_then_fails(tmp_path: Path, control: FakeControlApi) -> None:
    small = SpoolSettings(tmp_path / "spool", max_bytes=3 << 20, segment_bytes=1 << 20)
    async with running_sidecar(tmp_path, control, spool=small) as running:
        seen = []
        for _ in range(20_000):
            answer = await running.call("POST", EVALUATION, GOOD)
            told = answer.json()
            seen.append(told.get("decision", answer.status))
            if seen[-1] == 503:
                break
            if seen[-1] is False:
                assert told["context"]["policy_name"] == "audit_unavailable"
        assert list(dict.fromkeys(seen)) == [True, False, 503]


async def test_a_stale_policy_set_denies(sidecar: RunningSidecar, control: FakeControlApi) -> None:
    control.refuse_with = 500
    sidecar.clock.ahead += 100
    answer = await ask(sidecar)
    assert answer.json()["context"]["policy_name"] == "policy_set_stale"
    answer = await ask(sidecar, action={"name": "delete"})
    assert answer.json()["decision"] is False


async def test_each_route_is_an_operation_in_the_metrics(sidecar: RunningSidecar) -> None:
    await ask(sidecar)
    await ask(sidecar, path=EVALUATIONS)
    await ask(sidecar, path=EVALUATIONS, subject=[])
    for operation, status, count in (
        ("authzen", 200, 1),
        ("authzen_batch", 200, 1),
        ("authzen_batch", 400, 1),
    ):
        sample = f'sluice_requests_total{{operation="{operation}",status="{status}"}}'
        assert await sidecar.metric(sample) == count
    assert await sidecar.metric("sluice_evaluate_seconds_count") == 2


async def test_a_revoked_key_stops_working(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    assert (await ask(sidecar)).status == 200
    name = next(each for each in control.documents if each.startswith("key/"))
    revision = control.publish({name: None})
    await sidecar.follows(revision)
    answer = await ask(sidecar)
    assert answer.status == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


async def test_a_session_is_claimed_as_by_evaluate(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    body = question(context={"user_id": "ann@example.com", "session_id": "s-1"})
    answer = await sidecar.call("POST", EVALUATION, orjson.dumps(body))
    assert answer.json()["decision"] is True
    await until_async("claimed", lambda: control.claims)
    assert control.claims[0]["session_id"] == "s-1"


async def test_a_question_behind_a_known_head_is_answered_once_its_record_is_on_disk(
    sidecar: RunningSidecar, disk: FaultyDisk
) -> None:
    reader, writer = await connect(sidecar)
    # The second time, the head is known.
    for _ in range(2):
        writer.write(sent(GOOD))
        assert (await answer_of(reader))[0] == 200
    disk.hangs.clear()
    writer.write(sent(GOOD) + sent(orjson.dumps(question(action={"name": "delete"}))))
    answering = asyncio.create_task(answer_of(reader))
    await until_async("the first is decided", lambda: sidecar.spool.bytes_waiting)
    assert not answering.done()
    disk.hangs.set()
    first, second = await answering, await answer_of(reader)
    assert orjson.loads(first[2])["decision"] is True
    assert orjson.loads(second[2])["context"]["policy_name"] == "unmapped_request"
    assert len(await decisions(sidecar)) == 4
    writer.close()


def sent(body: bytes) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n%b\r\n%b"
    ) % (EVALUATION.encode(), len(body), with_key(), body)
