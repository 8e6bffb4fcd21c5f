"""Bodies of evaluations, health, metrics, explanations and batches on the sidecar's port. Bad input
leaves no record."""

import gzip
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies import __version__
from policies.ground.addresses import ListenAddress
from tests.sidecar.error_bodies import is_error, refused
from tests.sidecar.wire import GOOD, raw, request, with_key
from tests.support import waiting
from tests.support.fake_control_api import FakeControlApi, fake_control_api
from tests.support.sidecar import EVALUATE, RunningSidecar, ask, running_sidecar


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
async def test_a_malformed_body_is_400(sidecar: RunningSidecar, body: bytes, says: str) -> None:
    assert says in (await refused(sidecar, 400, body=body))["message"]
    assert await sidecar.records() == []


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
async def test_a_content_type_other_than_json_is_400(
    sidecar: RunningSidecar, content_type: str
) -> None:
    await refused(sidecar, 400, body=GOOD, headers={"Content-Type": content_type})
    assert await sidecar.records() == []


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
    sidecar: RunningSidecar, content_type: bytes
) -> None:
    status, _, body = await raw(sidecar, request(content_type + with_key(), GOOD))
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
    sidecar: RunningSidecar, changed: dict[str, Any], fields: list[str]
) -> None:
    told = await refused(sidecar, 422, body=orjson.dumps(ask(**changed)))
    assert [line.split(":")[0] for line in told["details"].splitlines()] == fields
    assert await sidecar.records() == []


async def test_unknown_fields_are_ignored_and_nulls_are_absent(sidecar: RunningSidecar) -> None:
    body = {**ask(), "denied_sources": [], "session_id": None, "query": None}
    answer = await sidecar.call("POST", EVALUATE, orjson.dumps(body))
    assert answer.json()["decision"] == "ALLOW"


async def test_explain_and_other_queries_change_nothing(sidecar: RunningSidecar) -> None:
    answer = await sidecar.call("POST", EVALUATE + "?a=b&c", GOOD)
    assert answer.status == 200


async def test_health_and_readiness_need_no_key_and_show_no_path(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        await control.stop()
        async with running_sidecar(tmp_path, control, synced=False) as running:
            answer = await running.call("GET", "/health", key=None)
            assert answer.status == 200
            assert answer.json() == {"status": "ok", "version": __version__}
            answer = await running.call("GET", "/health/ready", key=None)
            assert answer.status == 503
            assert is_error(503, answer.body)["details"].startswith("policy_set: ")
            assert str(tmp_path) not in answer.text()
            await control.start()
            control.create_tenant()

            async def ready() -> bool:
                return (await running.call("GET", "/health/ready", key=None)).status == 200

            await waiting.until_async("it is ready", ready)
            answer = await running.call("GET", "/health/ready", key=None)
            assert answer.json() == {
                "status": "ready",
                "version": __version__,
                "policy_feed": "control",
                "tenant": "active",
            }


async def test_metrics_can_move_to_a_port_of_their_own(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        own = ListenAddress("127.0.0.1", 0)
        async with running_sidecar(tmp_path, control, metrics_listen=own) as running:
            assert (await running.call("GET", "/metrics", key=None)).status == 404
            running.address = running.ports[1].address
            assert (await running.call("GET", "/metrics", key=None)).status == 200
            assert (await running.call("GET", "/health", key=None)).status == 404


async def test_no_label_of_a_metric_contains_text_from_a_request(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await sidecar.evaluate()
    await sidecar.evaluate(source_id="payroll", user_id="marker-user")
    await sidecar.evaluate(agent_role="marker-role", agent_id="marker-agent")
    await sidecar.call("GET", "/marker-path", key="marker-key")
    text = (await sidecar.call("GET", "/metrics", key=None)).text()
    assert "marker" not in text
    assert "underwriting" not in text
    assert "default" not in re.sub(r"default_deny", "", text)
    sample = 'sluice_requests_total{operation="none",status="404"}'
    assert await sidecar.metric(sample) == 1
    assert await sidecar.metric("sluice_evaluate_seconds_count") == 3
    assert await sidecar.metric("sluice_policy_set_revision") == control.revision
    assert await sidecar.metric("sluice_spool_records") == 3
    assert await sidecar.metric("process_resident_memory_bytes") > 0


async def test_an_explanation_equals_the_control_api_s(sidecar: RunningSidecar) -> None:
    path = f"{EVALUATE}?explain=true"
    allowed = (await sidecar.call("POST", path, orjson.dumps(ask()))).json()
    assert list(allowed) == ["decision", "policy_name", "reason", "event_id", "explain"]
    assert allowed["explain"]["nearest_miss"] is None
    denied = (await sidecar.call("POST", path, orjson.dumps(ask(source_id="none")))).json()
    assert denied["explain"]["nearest_miss"]["check"] == "source"
    outcomes = [check["outcome"] for check in denied["explain"]["checks"]]
    assert outcomes[-2:] == ["failed", "not_reached"]
    plain = await sidecar.call("POST", f"{EVALUATE}?explain=false", orjson.dumps(ask()))
    assert "explain" not in plain.json()
    for query in ("explain=1", "explain=true&explain=true"):
        await refused(sidecar, 422, path=f"{EVALUATE}?{query}", body=orjson.dumps(ask()))


@pytest.mark.parametrize(
    ("semantics", "decided"), [("all", 3), ("stop_on_deny", 2), ("stop_on_allow", 1)]
)
async def test_a_batch_is_decided_in_order(
    sidecar: RunningSidecar, semantics: str, decided: int
) -> None:
    items = [ask(), ask(source_id="none"), ask()]
    body = orjson.dumps({"items": items, "semantics": semantics})
    results = (await sidecar.call("POST", f"{EVALUATE}/batch", body)).json()["results"]
    expected = ["ALLOW", "DENY", "ALLOW"][:decided]
    assert [each["decision"] for each in results] == expected
    assert len({each["event_id"] for each in results}) == decided
    told = await refused(
        sidecar, 422, path=f"{EVALUATE}/batch", body=orjson.dumps({"items": [ask(), 1]})
    )
    assert told["details"].startswith("items.1.retrieval")
