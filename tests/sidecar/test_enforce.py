"""What a sidecar decides, and that every decision is recorded."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.checks.order import NAMES
from policies.sets.policy_set import (
    role_document,
    role_name,
)
from tests.support.fake_control_api import (
    READ_KEY,
    ROLE,
    FakeControlApi,
    fake_control_api,
    policy,
)
from tests.support.sidecar import EVALUATE, RunningSidecar, ask, retrieval, running_sidecar
from tests.support.waiting import until_async


async def test_an_allowed_retrieval_is_answered_and_recorded(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    answer = await sidecar.evaluate(query="what is the covenant?", task_type="review")
    assert answer.keys() == {"decision", "policy_name", "reason", "event_id"}
    assert answer["decision"] == "ALLOW"
    [record] = await sidecar.records()
    assert record["eid"] == answer["event_id"]
    assert record["src"]["id"] == "sidecar-1"
    response = record["pub"]["response"]
    assert {name: response[name] for name in ("decision", "policy_name", "reason")} == {
        name: answer[name] for name in ("decision", "policy_name", "reason")
    }
    assert record["pub"]["facts"]["revision"] == control.revision
    assert record["pub"]["facts"]["key"]["key_id"] == "key_e"
    assert record["cm"].keys() == {"query", "user_id"}
    assert "ann@example.com" not in orjson.dumps(record).decode()


@pytest.mark.parametrize(
    ("changed", "policy_name"),
    [
        ({"agent_id": "agt_unknown"}, "agent_not_registered"),
        ({"agent_role": "teller"}, "role_not_permitted"),
        ({"agent_role": "teller", "agent_id": None}, "default_deny"),
        ({"source_id": "payroll"}, "underwriting"),
        ({"source_id": "unheard-of"}, "underwriting"),
        ({"sensitivity_level": "critical"}, "underwriting"),
    ],
)
async def test_a_denied_retrieval_is_recorded_like_any_other(
    sidecar: RunningSidecar, changed: dict[str, Any], policy_name: str
) -> None:
    answer = await sidecar.evaluate(**changed)
    assert (answer["decision"], answer["policy_name"]) == ("DENY", policy_name)
    [record] = await sidecar.records()
    assert record["eid"] == answer["event_id"]
    assert record["pub"]["response"]["reason"] == answer["reason"]
    assert record["pub"]["response"]["check"] in NAMES


async def test_a_stale_policy_set_denies_and_is_recorded(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await control.stop()
    sidecar.clock.ahead = 29
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    sidecar.clock.ahead = 31
    answer = await sidecar.evaluate()
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "policy_set_stale")
    assert "the limit is 30 s" in answer["reason"]
    assert [r["policy_name"] for r in await sidecar.responses()] == [
        "underwriting",
        "policy_set_stale",
    ]
    assert "last confirmed" in (await sidecar.problems())["policy_set"]
    sample = 'sluice_decisions_total{check="policy_set_stale",decision="DENY"}'
    assert await sidecar.metric(sample) == 1
    # Who asks is still judged: a stale set makes no key good.
    refused = await sidecar.call("POST", EVALUATE, orjson.dumps(ask()), key=READ_KEY)
    assert refused.status == 403
    unknown = await sidecar.call("POST", EVALUATE, orjson.dumps(ask()), key="slc_unknown")
    assert unknown.status == 403
    await control.start()
    await until_async("the set is confirmed", lambda: not sidecar.parts.readiness.problems())
    assert (await sidecar.evaluate())["decision"] == "ALLOW"


async def test_without_a_policy_set_no_key_is_called_invalid(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        await control.stop()
        async with running_sidecar(tmp_path, control, synced=False) as running:
            answer = await running.call("POST", EVALUATE, orjson.dumps(ask()))
            assert answer.status == 503
            assert await running.records() == []
            assert "no policy set" in (await running.problems())["policy_set"]


async def test_a_start_without_the_control_api_decides_by_the_set_on_disk(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control):
            pass
        await control.stop()
        async with running_sidecar(tmp_path, control, synced=False) as running:
            assert (await running.evaluate())["decision"] == "ALLOW"
            assert await running.problems() == {}
            running.clock.ahead = 31
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"


async def test_a_check_that_raises_denies_and_names_the_error_only_in_the_log(
    sidecar: RunningSidecar, control: FakeControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    # A document that passed its digest and is not what a role's document is.
    control.publish({role_name(ROLE): b'[{"surprise":1}]'})
    await sidecar.follows(control.revision)
    answer = await sidecar.evaluate()
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
    assert "KeyError" not in answer["reason"]
    assert "KeyError" in caplog.text
    [response] = await sidecar.responses()
    assert response["policy_name"] == "evaluation_error"
    [record] = await sidecar.records()
    assert record["pub"]["facts"] == {}
    sample = 'sluice_decisions_total{check="evaluation_error",decision="DENY"}'
    assert await sidecar.metric(sample) == 1
    # Other roles are not concerned.
    assert (await sidecar.evaluate(agent_role="x", agent_id=None))["policy_name"] != (
        "evaluation_error"
    )


async def test_a_refusal_outside_the_checks_is_recorded(sidecar: RunningSidecar) -> None:
    pending = await sidecar.parts.enforcer.deny(
        retrieval(source_id="chroma://kb"), "unreadable_request", "two keys of one name"
    )
    await pending.durable
    assert pending.decision.decision == "DENY"
    [record] = await sidecar.records()
    assert record["pub"]["response"]["policy_name"] == "unreadable_request"
    sample = 'sluice_decisions_total{check="unreadable_request",decision="DENY"}'
    assert await sidecar.metric(sample) == 1


async def test_permits_gives_the_result_of_evaluate_and_records_nothing(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    key = sidecar.agent_key()
    permits = sidecar.parts.enforcer.preview.permits
    assert permits(retrieval(), key)
    assert not permits(retrieval(source_id="payroll"), key)
    assert not permits(retrieval(agent_id="agt_unknown"), key)
    await sidecar.evaluate(session_id="s-1")
    assert permits(retrieval(session_id="s-1"), key)
    assert not permits(retrieval(session_id="s-1", agent_id=None), key)
    assert permits(retrieval(session_id="s-2"), key)
    control.publish({role_name(ROLE): b"[]"})
    await sidecar.follows(control.revision)
    assert not permits(retrieval(), key)
    sidecar.clock.ahead = 31
    assert not permits(retrieval(), key)
    assert len(await sidecar.records()) == 1
    assert [claim["session_id"] for claim in control.claims] == ["s-1"]


async def test_a_policy_changed_at_the_control_api_takes_effect(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    control.publish({role_name(ROLE): role_document([policy(allowed_sources=())])})

    async def denied() -> bool:
        return bool((await sidecar.evaluate())["decision"] != "ALLOW")

    await until_async("the change is in force", denied)
