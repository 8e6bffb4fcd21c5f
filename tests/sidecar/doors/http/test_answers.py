"""What a gateway gets: the outcomes of `INTEGRATIONS.md`, Check doors over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from policies.ground.keys import make_key
from sidecar.spool import SpoolFull
from tests.sidecar.doors.http.checks import GATEWAY_KEY, Checks, checks
from tests.support.fake_control_api import EVALUATE_KEY, READ_KEY, policy

EACH = pytest.mark.parametrize("door", ["edge", "nginx", "ingress"])
REMOVED = "x-api-key,x-sluice-user,x-sluice-session,x-sluice-task,x-sluice-sensitivity"


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Checks]:
    allowed = policy(allowed_sources=("rest://crm/a*",))
    async with checks(tmp_path, allowed) as made:
        yield made


@EACH
async def test_an_allow_is_200_without_a_body(asked: Checks, door: str) -> None:
    answer = await asked.ask(door, "GET", "/a?b=c", ("X-Request-ID", "req-7"))
    assert (answer.status, answer.body, answer.decision) == (200, b"", "ALLOW")
    assert answer.fields["x-request-id"] == "req-7"
    assert answer.fields["cache-control"] == "no-store"
    assert answer.fields.get("x-envoy-auth-headers-to-remove") == (
        REMOVED if door == "edge" else None
    )
    [record] = await asked.decided()
    assert (record["source_id"], record["source_type"]) == ("rest://crm/a", door)
    [event] = [each["eid"] for each in await asked.running.records()]
    assert answer.fields["x-sluice-event-id"] == event


@EACH
async def test_a_denial_is_403_with_the_decision(asked: Checks, door: str) -> None:
    answer = await asked.ask(door, "GET", "/b")
    assert (answer.status, answer.decision) == (403, "DENY")
    body = answer.json()
    assert (body["error"], body["code"]) == ("Forbidden", 403)
    assert body["decision"]["decision"] == "DENY"
    assert body["decision"]["event_id"] == answer.fields["x-sluice-event-id"]
    assert body["message"] == body["decision"]["reason"]
    assert "x-envoy-auth-headers-to-remove" not in answer.fields


@EACH
async def test_a_head_is_answered_without_a_body(asked: Checks, door: str) -> None:
    for target, status in (("/a", 200), ("/b", 403)):
        answer = await asked.ask(door, "HEAD", target)
        assert (answer.status, answer.body) == (status, b"")
    assert [each["decision"] for each in await asked.decided()] == ["ALLOW", "DENY"]


@EACH
async def test_a_door_accepts_only_valid_keys_of_the_scope(asked: Checks, door: str) -> None:
    for key, status in (
        (None, 401),
        ("", 401),
        ("nonsense", 403),
        (make_key(b"x" * 32), 403),
        (READ_KEY, 403),
        (EVALUATE_KEY, 200),
        (GATEWAY_KEY, 200),
    ):
        answer = await asked.ask(door, key=key)
        assert answer.status == status
        if status != 200:
            assert answer.decision is None
            assert "decision" not in answer.json()
    assert len(await asked.decided()) == 2


@EACH
async def test_two_keys_are_no_key(asked: Checks, door: str) -> None:
    answer = await asked.ask(door, "GET", "/a", ("x-api-key", EVALUATE_KEY))
    assert (answer.status, answer.decision) == (403, None)


@EACH
async def test_the_authorization_of_the_end_user_is_never_read(asked: Checks, door: str) -> None:
    bearer = ("Authorization", f"Bearer {EVALUATE_KEY}")
    assert (await asked.ask(door, "GET", "/a", bearer, key=None)).status == 401
    other = ("Authorization", "Bearer another")
    assert (await asked.ask(door, "GET", "/a", other)).status == 200


async def test_an_unknown_door_is_not_found(asked: Checks) -> None:
    for target in ("/v1/check/", "/v1/check/none", "/v1/check/none/a", "/v1/check/Edge/a",
                   "/v1/check/%65dge/a", "/v1/check/nginx/", "/v1/check/nginx/a",
                   "/v1/check/nginx?a"):  # fmt: skip
        for key, status in ((None, 401), (EVALUATE_KEY, 404)):
            line = "" if key is None else f"X-API-Key: {key}\r\n"
            answer = await asked.send(f"GET {target} HTTP/1.1\r\nHost: a\r\n{line}\r\n".encode())
            assert (answer.status, answer.decision) == (status, None), target
    assert await asked.decided() == []


async def test_a_body_over_the_limit_is_413(asked: Checks) -> None:
    body = b"x" * (1024 * 1024 + 1)
    for door in ("edge", "nginx"):
        answer = await asked.ask(door, "POST", "/a", body=body)
        assert (answer.status, answer.decision) == (413, None)
        assert (await asked.ask(door, "POST", "/a", body=body, key=None)).status == 401
    assert await asked.decided() == []


async def test_bytes_that_are_not_http_are_refused_with_400(asked: Checks) -> None:
    for data in (
        b"GET /v1/check/edge/a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /v1/check/edge/a HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /v1/check/edge/a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /v1/check/edge/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /v1/check/edge/a HTTP/1.1\r\nHost: a\r\nX-API-Key: %b\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" % EVALUATE_KEY.encode(),
    ):
        assert (await asked.send(data)).status == 400, data
    assert await asked.decided() == []


@EACH
async def test_a_record_that_cant_be_written_is_no_decision(asked: Checks, door: str) -> None:
    asked.disk.fails = True
    for target in ("/a", "/b"):
        answer = await asked.ask(door, "GET", target)
        assert (answer.status, answer.decision) == (403, "NONE")
        assert answer.fields["retry-after"] == "1"
        assert "x-sluice-event-id" not in answer.fields
        assert "decision" not in answer.json()


@EACH
async def test_a_full_spool_is_no_decision(
    asked: Checks, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SpoolFull

    monkeypatch.setattr(asked.running.spool, "put_together", full)
    for target in ("/a", "/b", "/a/../b"):
        answer = await asked.ask(door, "GET", target)
        assert (answer.status, answer.decision) == (403, "NONE")
    assert (await asked.ask("own", key=EVALUATE_KEY)).decision == "NONE"  # unmapped


@EACH
async def test_no_answer_leaves_before_its_record_is_on_disk(asked: Checks, door: str) -> None:
    asked.disk.hangs.clear()
    try:
        for target in ("/a", "/b"):
            with pytest.raises(TimeoutError):
                # expires on purpose
                async with asyncio.timeout(0.2):
                    await asked.ask(door, "GET", target)
    finally:
        asked.disk.hangs.set()
    assert (await asked.ask(door)).status == 200


@EACH
async def test_a_stale_policy_set_is_a_denial(asked: Checks, door: str) -> None:
    await asked.control.stop()
    asked.running.clock.ahead = 100
    answer = await asked.ask(door)
    assert (answer.status, answer.decision) == (403, "DENY")
    assert answer.json()["decision"]["policy_name"] == "policy_set_stale"


async def test_without_a_policy_set_nothing_is_decided(tmp_path: Path) -> None:
    async with checks(tmp_path, synced=False) as asked:
        for door in ("edge", "nginx", "ingress", "mesh"):
            answer = await asked.ask(door)
            assert (answer.status, answer.decision) == (403, "NONE"), door
            assert answer.fields["retry-after"] == "1"
        assert await asked.decided() == []


async def test_an_unexpected_error_is_no_decision(
    asked: Checks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    for judgement in asked.running.parts.doors.judgements:
        monkeypatch.setattr(judgement, "judge", broken)
    answer = await asked.ask("edge", "GET", "/a", ("X-Request-ID", "req-9"))
    assert (answer.status, answer.decision) == (403, "NONE")
    assert "req-9" in answer.json()["message"]
    assert "a bug" not in answer.body.decode()
    assert "a bug" in caplog.text


async def test_the_door_s_agent_is_used_without_a_key(asked: Checks) -> None:
    assert (await asked.ask("mesh", key=None)).status == 200
    [record] = await asked.decided()
    assert (record["agent_id"], record["source_type"]) == ("agt_loans", "mesh")


async def test_the_agent_can_be_that_of_the_key(asked: Checks) -> None:
    assert (await asked.ask("own", key=GATEWAY_KEY)).status == 200
    assert (await asked.ask("own", key=EVALUATE_KEY)).status == 403
    bound, unmapped = await asked.decided()
    assert (bound["agent_id"], bound["agent_role"]) == ("agt_loans", "underwriter")
    assert (unmapped["policy_name"], unmapped["source_id"]) == (
        "unmapped_request",
        "own://unmapped",
    )


async def test_responses_are_counted_without_a_doors_name(asked: Checks) -> None:
    await asked.ask("edge")
    await asked.ask("nginx", "GET", "/b")
    await asked.ask("nginx", key=None)
    for status in (200, 403, 401):
        sample = f'sluice_requests_total{{operation="check",status="{status}"}}'
        assert await asked.running.metric(sample) == 1
    metrics = (await asked.running.call("GET", "/metrics", key=None)).text()
    assert not any(f'"{door}"' in metrics for door in ("edge", "nginx", "ingress", "mesh", "own"))


async def test_other_paths_on_the_port_belong_to_the_api(asked: Checks) -> None:
    assert (await asked.running.evaluate(source_id="rest://crm/a"))["decision"] == "ALLOW"
    assert (await asked.running.call("GET", "/health", key=None)).status == 200
    assert (await asked.running.call("GET", "/v1/checked")).status == 404
