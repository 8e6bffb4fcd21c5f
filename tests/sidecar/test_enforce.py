"""What a sidecar answers, and that every answer is in its spool before it leaves."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.checks.order import NAMES
from policies.definitions.model import Agent, Key
from policies.ground.canonical import b64
from policies.ground.keys import key_digest
from policies.retrieval import Retrieval
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
)
from policies.trail.spool_chain import core_hash
from sidecar.enforce import Enforcer
from sidecar.live_keys import AgentIdentity, LiveKeys
from sidecar.spool import SpoolSettings, SpoolUnwritable
from tests import waiting
from tests.sidecar.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    READ_KEY,
    ROLE,
    fake_control_api,
    policy,
)
from tests.sidecar.stand import EVALUATE, FaultyDisk, Stand, ask, sidecar, until

SMALL = 1024 * 1024


def enforcer(stand: Stand) -> Enforcer:
    return stand.parts.enforcer


def asked(**changed: Any) -> Retrieval:
    return Retrieval(**ask(**changed))


async def test_an_allowed_retrieval_is_answered_and_recorded(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            answer = await stand.evaluate(query="what is the covenant?", task_type="review")
            assert answer.keys() == {"decision", "policy_name", "reason", "event_id"}
            assert answer["decision"] == "ALLOW"
            [record] = await stand.records()
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
    tmp_path: Path, changed: dict[str, Any], policy_name: str
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            answer = await stand.evaluate(**changed)
            assert (answer["decision"], answer["policy_name"]) == ("DENY", policy_name)
            [record] = await stand.records()
            assert record["eid"] == answer["event_id"]
            assert record["pub"]["response"]["reason"] == answer["reason"]
            assert record["pub"]["response"]["check"] in NAMES


async def test_a_stale_policy_set_denies_and_is_recorded(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            await control.stop()
            stand.clock.ahead = 29
            assert (await stand.evaluate())["decision"] == "ALLOW"
            stand.clock.ahead = 31
            answer = await stand.evaluate()
            assert (answer["decision"], answer["policy_name"]) == ("DENY", "policy_set_stale")
            assert "the limit is 30 s" in answer["reason"]
            assert [r["policy_name"] for r in await stand.responses()] == [
                "underwriting",
                "policy_set_stale",
            ]
            assert "last confirmed" in (await stand.problems())["policy_set"]
            sample = 'sluice_decisions_total{check="policy_set_stale",decision="DENY"}'
            assert await stand.metric(sample) == 1
            # Who asks is still judged: a stale set makes no key good.
            refused = await stand.call("POST", EVALUATE, orjson.dumps(ask()), key=READ_KEY)
            assert refused.status == 403
            unknown = await stand.call("POST", EVALUATE, orjson.dumps(ask()), key="slc_unknown")
            assert unknown.status == 403
            await control.start()
            await until("the set is confirmed", lambda: not stand.parts.readiness.problems())
            assert (await stand.evaluate())["decision"] == "ALLOW"


async def test_without_a_policy_set_no_key_is_called_invalid(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        await control.stop()
        async with sidecar(tmp_path, control, synced=False) as stand:
            answer = await stand.call("POST", EVALUATE, orjson.dumps(ask()))
            assert answer.status == 503
            assert await stand.records() == []
            assert "no policy set" in (await stand.problems())["policy_set"]


async def test_a_start_without_the_control_api_decides_by_the_set_on_disk(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control):
            pass
        await control.stop()
        async with sidecar(tmp_path, control, synced=False) as stand:
            assert (await stand.evaluate())["decision"] == "ALLOW"
            assert await stand.problems() == {}
            stand.clock.ahead = 31
            assert (await stand.evaluate())["policy_name"] == "policy_set_stale"


async def test_what_is_revoked_is_refused_within_a_second(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            assert (await stand.evaluate())["decision"] == "ALLOW"
            control.publish(
                {
                    key_name(key_digest(EVALUATE_KEY)): None,
                    agent_name(AGENT): agent_document(Agent(AGENT, "deprecated", (ROLE,))),
                }
            )
            async with asyncio.timeout(20):
                while (await stand.call("POST", EVALUATE, orjson.dumps(ask()))).status != 403:
                    await asyncio.sleep(0.01)
            # With another key, it is the agent that is refused.
            other = key_document(Key("key_r", "evaluate"))
            control.publish({key_name(key_digest(READ_KEY)): other})
            async with asyncio.timeout(20):
                while True:
                    body = orjson.dumps(ask())
                    answer = (await stand.call("POST", EVALUATE, body, key=READ_KEY)).json()
                    if "decision" in answer:
                        break
            assert answer["policy_name"] == "agent_not_approved"


async def test_an_expired_key_is_refused_whatever_the_host_s_clock_says(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, staleness_seconds=3600) as stand:
            expires = stand.clock.clock.now() + 60_000_000
            bound = key_document(Key("key_e", "evaluate", expires_at=expires))
            control.publish({key_name(key_digest(EVALUATE_KEY)): bound})
            await stand.follows(control.revision)
            assert (await stand.evaluate())["decision"] == "ALLOW"
            stand.clock.wall_ahead = 3600
            assert (await stand.evaluate())["decision"] == "ALLOW"
            stand.clock.ahead = 61
            answer = await stand.call("POST", EVALUATE, orjson.dumps(ask()))
            assert answer.status == 403


async def test_a_check_that_raises_denies_and_says_so_in_the_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            # A document that passed its digest and is not what a role's document is.
            control.publish({role_name(ROLE): b'[{"surprise":1}]'})
            await stand.follows(control.revision)
            answer = await stand.evaluate()
            assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
            assert "KeyError" not in answer["reason"]
            assert "KeyError" in caplog.text
            [response] = await stand.responses()
            assert response["policy_name"] == "evaluation_error"
            [record] = await stand.records()
            assert record["pub"]["facts"] == {}
            sample = 'sluice_decisions_total{check="evaluation_error",decision="DENY"}'
            assert await stand.metric(sample) == 1
            # Other roles are not concerned.
            assert (await stand.evaluate(agent_role="x", agent_id=None))["policy_name"] != (
                "evaluation_error"
            )


async def fill(stand: Stand) -> None:
    """Until no ALLOW finds room."""
    body = orjson.dumps(ask(query="x" * 60_000))
    for _ in range(400):
        answer = (await stand.call("POST", EVALUATE, body)).json()
        if answer.get("decision") != "ALLOW":
            return
    raise AssertionError("the spool never filled")


def small(tmp_path: Path) -> SpoolSettings:
    return SpoolSettings(tmp_path / "spool", segment_bytes=SMALL, max_bytes=3 * SMALL)


async def test_a_full_spool_denies_what_it_can_not_record_as_allowed(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, spool=small(tmp_path)) as stand:
            await fill(stand)
            answer = await stand.evaluate(query="x" * 60_000)
            assert (answer["decision"], answer["policy_name"]) == ("DENY", "audit_unavailable")
            response = (await stand.responses())[-1]
            assert response["policy_name"] == "audit_unavailable"
            sample = 'sluice_decisions_total{check="audit_unavailable",decision="DENY"}'
            assert await stand.metric(sample) == 2
            assert "full" in (await stand.problems())["spool"]
            # A denial in its own right keeps its own reason, as long as there is room for it.
            assert (await stand.evaluate(source_id="payroll"))["policy_name"] == "underwriting"


async def test_if_not_even_a_denial_can_be_recorded_nothing_is_decided(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, spool=small(tmp_path)) as stand:
            await fill(stand)
            body = orjson.dumps(ask(query="x" * 60_000))
            answer = await stand.call("POST", EVALUATE, body)
            for _ in range(400):
                answer = await stand.call("POST", EVALUATE, body)
                if answer.status != 200:
                    break
            assert answer.status == 503
            assert answer.json()["message"].startswith("the spool is full")
            allowed, denied = 0, 0
            for response in await stand.responses():
                allowed += response["decision"] == "ALLOW"
                denied += response["decision"] == "DENY"
            answers = 'sluice_requests_total{operation="evaluate_context",status="200"}'
            assert allowed + denied == await stand.metric(answers)
            # Shipped records make room again.
            batch = await stand.spool.batch(1 << 30, 1 << 20)
            assert batch is not None
            await stand.spool.acknowledge(batch.instance, batch.last_n)

            async def allows() -> bool:
                answer = (await stand.call("POST", EVALUATE, orjson.dumps(ask()))).json()
                return bool(answer.get("decision") == "ALLOW")

            await waiting.until_told("it is allowed", allows)


async def test_a_disk_that_fails_answers_503_and_no_decision(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            assert (await stand.evaluate())["decision"] == "ALLOW"
            disk.fails = True
            for source in ("contracts", "payroll"):
                body = orjson.dumps(ask(source_id=source))
                answer = await stand.call("POST", EVALUATE, body)
                assert answer.status == 503
                assert "decision" not in answer.json()
                assert str(tmp_path) not in answer.text()
            assert "spool" in await stand.problems()
            disk.fails = False
            await until("the disk is tried again", lambda: stand.spool.refusal is None)
            assert (await stand.evaluate())["decision"] == "ALLOW"
            assert await stand.problems() == {}


async def test_no_answer_leaves_before_its_record_is_on_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            disk.hangs.clear()
            calls = [asyncio.create_task(stand.evaluate()) for _ in range(5)]
            done, _ = await asyncio.wait(calls, timeout=0.3)
            assert not done
            disk.hangs.set()
            answers = await asyncio.gather(*calls)
            recorded = {record["eid"] for record in await stand.records()}
            assert recorded == {answer["event_id"] for answer in answers}


async def test_a_strict_spool_answers_503_in_time(tmp_path: Path) -> None:
    disk = FaultyDisk()
    strict = SpoolSettings(tmp_path / "spool", mode="strict", timeout_ms=100, segment_bytes=SMALL)
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk, spool=strict) as stand:
            disk.hangs.clear()
            try:
                async with asyncio.timeout(20):
                    answer = await stand.call("POST", EVALUATE, orjson.dumps(ask()))
            finally:
                disk.hangs.set()
            assert answer.status == 503


async def test_best_effort_answers_while_the_disk_hangs(tmp_path: Path) -> None:
    disk = FaultyDisk()
    hasty = SpoolSettings(tmp_path / "spool", mode="best_effort", segment_bytes=SMALL)
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk, spool=hasty) as stand:
            disk.hangs.clear()
            try:
                async with asyncio.timeout(20):
                    answer = await stand.evaluate()
            finally:
                disk.hangs.set()
            [record] = await stand.records()
            assert record["eid"] == answer["event_id"]


async def test_a_client_that_hangs_up_undoes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            disk.hangs.clear()
            call = asyncio.create_task(stand.evaluate(source_id="rates"))
            await until("it is in the spool's hands", lambda: stand.spool.bytes_waiting)
            call.cancel()
            await asyncio.wait([call])
            await waiting.turns()
            disk.hangs.set()
            [record] = await stand.records()
            assert record["pub"]["request"]["source_id"] == "rates"
            assert (await stand.evaluate())["decision"] == "ALLOW"


async def test_records_reach_the_log_in_order_and_once(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, ships=True) as stand:
            answers = await asyncio.gather(*(stand.evaluate() for _ in range(64)))
            await until("they ship", lambda: len(control.records) == 64)
            logged = [record["eid"] for record in control.records]
            assert sorted(logged) == sorted(answer["event_id"] for answer in answers)
            assert [record["src"]["n"] for record in control.records] == list(range(64))
            await until("the receipt is here", lambda: stand.parts.shipper.shipped == 64)
            assert await stand.metric("sluice_shipped_records_total") == 64


async def test_lineage_of_a_retrieval_cites_its_decision(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            key = LiveKeys(stand.parts.policies.policy_set, stand.clock.clock).find(
                key_digest(EVALUATE_KEY)
            )
            pending = await enforcer(stand).evaluate(asked(), key)
            detail: dict[str, int | str] = {
                "status": 200,
                "bytes": 12,
                "sha256": hashlib.sha256(b"").hexdigest(),
            }
            enforcer(stand).note_retrieval(pending, dict(detail), "completed")
            decision, lineage = await stand.records()
            assert lineage["kind"] == "lineage"
            assert lineage["pub"]["event"] == {
                "id": decision["eid"],
                "core": b64(core_hash(orjson.dumps(decision, option=orjson.OPT_SORT_KEYS))),
            }
            assert lineage["pub"]["detail"] == detail


async def test_lineage_that_does_not_fit_is_counted_and_harms_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, disk=disk) as stand:
            key = LiveKeys(stand.parts.policies.policy_set, stand.clock.clock).find(
                key_digest(EVALUATE_KEY)
            )
            pending = await enforcer(stand).evaluate(asked(), key)
            disk.fails = True
            with pytest.raises(SpoolUnwritable):
                await enforcer(stand).evaluate(asked(), key)
            enforcer(stand).note_retrieval(pending, {"status": 200}, "completed")
            enforcer(stand).note_retrieval(pending._replace(stored=False), {}, "completed")
            assert await stand.metric("sluice_lineage_lost_total") == 2


async def test_a_refusal_outside_the_checks_is_recorded(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            pending = await enforcer(stand).refuse(
                asked(source_id="chroma://kb"), "unreadable_request", "two keys of one name"
            )
            assert pending.decision.decision == "DENY"
            [record] = await stand.records()
            assert record["pub"]["response"]["policy_name"] == "unreadable_request"
            sample = 'sluice_decisions_total{check="unreadable_request",decision="DENY"}'
            assert await stand.metric(sample) == 1


async def test_an_agent_whose_key_was_revoked_is_denied_and_recorded(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            keys = LiveKeys(stand.parts.policies.policy_set, stand.clock.clock)
            agent = AgentIdentity.of(AGENT, ROLE, EVALUATE_KEY, keys)
            assert EVALUATE_KEY not in repr(agent)
            key = agent.key()
            assert (await enforcer(stand).evaluate(asked(), key)).decision.decision == "ALLOW"
            assert enforcer(stand).permits(asked(), key)
            control.publish({key_name(key_digest(EVALUATE_KEY)): None})
            await until("it follows", lambda: agent.key() is None)
            pending = await enforcer(stand).evaluate(asked(), agent.key())
            assert pending.decision.policy_name == "key_not_valid"
            assert not enforcer(stand).permits(asked(), agent.key())
            assert [r["policy_name"] for r in await stand.responses()] == [
                "underwriting",
                "key_not_valid",
            ]


async def test_an_agent_needs_a_key_that_may_evaluate(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            keys = LiveKeys(stand.parts.policies.policy_set, stand.clock.clock)
            assert AgentIdentity.of(AGENT, ROLE, READ_KEY, keys).key() is None


async def test_permits_says_what_evaluate_would_and_records_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            key = LiveKeys(stand.parts.policies.policy_set, stand.clock.clock).find(
                key_digest(EVALUATE_KEY)
            )
            permits = enforcer(stand).permits
            assert permits(asked(), key)
            assert not permits(asked(source_id="payroll"), key)
            assert not permits(asked(agent_id="agt_unknown"), key)
            await stand.evaluate(session_id="s-1")
            assert permits(asked(session_id="s-1"), key)
            assert not permits(asked(session_id="s-1", agent_id=None), key)
            assert permits(asked(session_id="s-2"), key)
            control.publish({role_name(ROLE): b"[]"})
            await stand.follows(control.revision)
            assert not permits(asked(), key)
            stand.clock.ahead = 31
            assert not permits(asked(), key)
            assert len(await stand.records()) == 1
            assert [claim["session_id"] for claim in control.claims] == ["s-1"]


async def test_a_policy_changed_at_the_control_api_takes_effect(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            assert (await stand.evaluate())["decision"] == "ALLOW"
            control.publish({role_name(ROLE): role_document([policy(allowed_sources=())])})
            async with asyncio.timeout(20):
                while (await stand.evaluate())["decision"] == "ALLOW":
                    await asyncio.sleep(0.01)


async def test_a_decision_is_one_line_in_the_debug_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="sidecar.recorder")
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            answer = await stand.evaluate(user_id="ann@example.com", query="secret text")
            lines = [r.message for r in caplog.records if r.name == "sidecar.recorder"]
            assert lines == [f"{answer['event_id']} ALLOW by underwriting: {answer['reason']}"]
            assert "ann@" not in caplog.text
            assert "secret" not in caplog.text
            assert EVALUATE_KEY not in caplog.text
