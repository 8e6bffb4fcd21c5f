"""Who owns a session: the control API is asked once, and the answer is remembered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import TenantSettings
from policies.ground.canonical import rfc3339
from policies.sets.policy_set import (
    role_document,
    role_name,
    session_document,
    session_name,
)
from sidecar import sessions as sessions_module
from sidecar.recorder import RecordedDecision
from tests.support import waiting
from tests.support.fake_control_api import (
    AGENT,
    FAR,
    ROLE,
    FakeControlApi,
    fake_control_api,
    policy,
)
from tests.support.loop_clock import LoopClock
from tests.support.sidecar import FakeClock, RunningSidecar, retrieval, running_sidecar
from tests.support.waiting import until_async


def foreign(state: str = "active", **changed: Any) -> dict[str, Any]:
    """A session that another sidecar claimed."""
    return {
        "session_id": "s-1",
        "state": state,
        "agent_role": ROLE,
        "agent_id": "agt_other",
        "expires_at": rfc3339(FAR),
        **changed,
    }


async def test_a_session_is_claimed_once_and_then_known(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    for _ in range(3):
        assert (await sidecar.evaluate(session_id="s-1"))["decision"] == "ALLOW"
    assert control.claims == [
        {
            "session_id": "s-1",
            "agent_role": ROLE,
            "agent_id": AGENT,
            "user_id": "ann@example.com",
        }
    ]
    records = await sidecar.records()
    assert [each["pub"]["facts"]["session"]["state"] for each in records] == ["active"] * 3
    assert await sidecar.metric('sluice_session_claims_total{state="active"}') == 1


async def test_a_call_without_a_session_claims_none(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    assert not control.claims


@pytest.mark.parametrize(
    ("session", "policy_name"),
    [
        (foreign(), "session_agent_mismatch"),
        (foreign(agent_id=None), "session_agent_mismatch"),
        (foreign(agent_id=AGENT, agent_role="teller"), "session_agent_mismatch"),
        (foreign("revoked", agent_id=AGENT), "session_revoked"),
        (foreign("expired", agent_id=AGENT), "session_expired"),
        (foreign(agent_id=AGENT), "underwriting"),
    ],
)
async def test_the_control_api_determines_who_owns_a_session(
    tmp_path: Path, session: dict[str, Any], policy_name: str
) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        control.sessions["s-1"] = session
        async with running_sidecar(tmp_path, control) as running:
            for _ in range(2):
                answer = await running.evaluate(session_id="s-1")
                assert answer["policy_name"] == policy_name
            assert len(control.claims) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"agent_id": "agt_unknown"},
        {"agent_role": "teller"},
        {"agent_id": None},
    ],
)
async def test_a_caller_that_fails_the_identity_checks_claims_nothing(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with fake_control_api() as control:
        control.create_tenant(settings=TenantSettings("default", require_agent_id=True))
        async with running_sidecar(tmp_path, control) as running:
            answer = await running.evaluate(session_id="s-1", **changed)
            assert answer["decision"] == "DENY"
            assert not control.claims
            assert (await running.evaluate(session_id="s-1"))["decision"] == "ALLOW"


async def test_a_caller_that_no_policy_allows_still_claims(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    answer = await sidecar.evaluate(session_id="s-1", source_id="payroll")
    assert answer["policy_name"] == "underwriting"
    assert len(control.claims) == 1


async def test_concurrent_calls_of_a_new_session_share_one_claim(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        control.hold_claims = asyncio.Event()
        async with running_sidecar(tmp_path, control) as running:
            calls = [asyncio.create_task(running.evaluate(session_id="s-1")) for _ in range(20)]
            await until_async("one asked", lambda: control.claims)
            await waiting.turns()
            control.hold_claims.set()
            answers = await asyncio.gather(*calls)
            assert {answer["decision"] for answer in answers} == {"ALLOW"}
            assert len(control.claims) == 1
            assert len({answer["event_id"] for answer in answers}) == 20


def callers(running: RunningSidecar, count: int) -> list[asyncio.Task[RecordedDecision]]:
    """So many callers of one new session."""
    decide, key = running.decide, running.agent_key()
    wanted = retrieval(session_id="s-1")
    return [asyncio.create_task(decide(wanted, key)) for _ in range(count)]


@pytest.mark.parametrize("leaving", [0, 1])
async def test_a_caller_that_leaves_fails_no_claim_of_others(tmp_path: Path, leaving: int) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        control.hold_claims = asyncio.Event()
        async with running_sidecar(tmp_path, control) as running:
            calls = callers(running, 3)
            await until_async("one asked", lambda: control.claims)
            calls.pop(leaving).cancel()
            await waiting.turns()
            control.hold_claims.set()
            decisions = [each.decision.decision for each in await asyncio.gather(*calls)]
            assert decisions == ["ALLOW", "ALLOW"]
            assert len(control.claims) == 1


async def test_a_claim_ends_with_its_last_caller_and_the_next_one_claims_anew(
    tmp_path: Path,
) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        control.hold_claims = asyncio.Event()
        async with running_sidecar(tmp_path, control) as running:
            calls = callers(running, 2)
            await until_async("one asked", lambda: control.claims)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            control.hold_claims.set()
            assert (await running.evaluate(session_id="s-1"))["decision"] == "ALLOW"
            assert len(control.claims) == 2


async def test_two_agents_racing_for_a_session_can_not_both_have_it(
    sidecar: RunningSidecar,
) -> None:
    answers = await asyncio.gather(
        sidecar.evaluate(session_id="s-1"), sidecar.evaluate(session_id="s-1", agent_id=None)
    )
    names = sorted(answer["policy_name"] for answer in answers)
    assert names == ["session_agent_mismatch", "underwriting"]


async def test_a_session_expires_by_the_clock_and_stays_expired(tmp_path: Path) -> None:
    clock = FakeClock()
    async with fake_control_api() as control:
        control.create_tenant()
        expires = rfc3339(clock.clock.now() + 60_000_000)
        control.sessions["s-1"] = foreign(agent_id=AGENT, expires_at=expires)
        async with running_sidecar(
            tmp_path, control, clock=clock, staleness_seconds=3600
        ) as running:
            assert (await running.evaluate(session_id="s-1"))["decision"] == "ALLOW"
            clock.wall_ahead = 3600  # somebody sets the host's clock: nothing follows
            assert (await running.evaluate(session_id="s-1"))["decision"] == "ALLOW"
            clock.ahead = 61
            assert (await running.evaluate(session_id="s-1"))["policy_name"] == "session_expired"
            assert len(control.claims) == 1


async def test_known_sessions_survive_a_restart_without_the_control_api(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            for session in ("s-1", "s-2"):
                assert (await running.evaluate(session_id=session))["decision"] == "ALLOW"
            control.publish({session_name("s-2"): session_document("s-2")})
            await running.follows(control.revision)
        await control.stop()
        async with running_sidecar(tmp_path, control, synced=False) as running:
            assert (await running.evaluate(session_id="s-1"))["decision"] == "ALLOW"
            other = await running.evaluate(session_id="s-1", agent_id=None)
            assert other["policy_name"] == "session_agent_mismatch"
            assert (await running.evaluate(session_id="s-2"))["policy_name"] == "session_revoked"
            assert len(control.claims) == 2


async def denied_unclaimed(running: RunningSidecar, why: str) -> None:
    answer = await running.evaluate(session_id="s-new")
    assert answer["decision"] == "DENY"
    assert answer["policy_name"] == "evaluation_error"
    assert why in answer["reason"]
    response = (await running.responses())[-1]
    assert response["policy_name"] == "evaluation_error"
    assert response["reason"] == answer["reason"]


async def test_a_new_session_without_the_control_api_is_denied_and_recorded(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    await control.stop()
    await denied_unclaimed(sidecar, "can't be reached")
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    await control.start()
    assert (await sidecar.evaluate(session_id="s-new"))["decision"] == "ALLOW"
    assert await sidecar.metric("sluice_session_claim_failures_total") == 1


async def test_a_hanging_control_api_is_awaited_no_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: LoopClock
) -> None:
    monkeypatch.setattr(sessions_module, "CLAIM_SECONDS", 10.0)
    async with fake_control_api() as control:
        control.create_tenant()
        control.hold_claims = asyncio.Event()
        async with running_sidecar(tmp_path, control) as running:
            loop, why = asyncio.get_running_loop(), "did not answer within 10 s"
            calls = [loop.create_task(denied_unclaimed(running, why)) for _ in range(5)]
            await until_async("one asks", lambda: control.claims)
            await clock.skip(15)
            await asyncio.gather(*calls)
            assert len(control.claims) == 1
            control.hold_claims.set()
            assert (await running.evaluate(session_id="s-new"))["decision"] == "ALLOW"


@pytest.mark.parametrize("status", [400, 403, 404, 429, 500])
async def test_a_refused_claim_is_a_denial(
    sidecar: RunningSidecar, control: FakeControlApi, status: int
) -> None:
    control.refuse_claims_with = status
    await denied_unclaimed(sidecar, str(status))


@pytest.mark.parametrize(
    "changed",
    [
        {"session_id": "s-another"},
        {"state": "borrowed"},
        {"state": None},
        {"expires_at": "tomorrow"},
        {"expires_at": None},
        {"expires_at": 7},
        {"agent_role": 7},
        {"agent_role": None},
        {"agent_id": ["agt_loans"]},
    ],
)
async def test_an_answer_that_is_no_session_is_a_denial(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        control.sessions["s-new"] = foreign(session_id="s-new", agent_id=AGENT) | changed
        async with running_sidecar(tmp_path, control) as running:
            await denied_unclaimed(running, "")


async def test_another_store_makes_every_claim_void(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=2.0) as running:
            await running.evaluate(session_id="s-1")
            control.sessions.clear()
            control.epoch, control.revision, control.documents = "epoch-2", 0, {}
            control.create_tenant(policy(name="renewed"))
            await until_async("it follows", lambda: running.parts.follower.polls > 1)

            async def renewed() -> bool:
                answer = await running.evaluate(session_id="s-1")
                return bool(answer["policy_name"] == "renewed")

            await waiting.until_async("the new set decides", renewed)
            assert len(control.claims) == 2


async def test_after_a_slow_claim_the_newest_policy_set_decides(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    control.hold_claims = asyncio.Event()
    call = asyncio.create_task(sidecar.evaluate(session_id="s-1"))
    await until_async("it asks", lambda: control.claims)
    revision = control.publish({role_name(ROLE): role_document([policy(name="newer")])})

    async def in_force() -> bool:
        return await sidecar.metric("sluice_policy_set_revision") == revision

    await waiting.until_async("it is in force", in_force)
    control.hold_claims.set()
    assert (await call)["policy_name"] == "newer"
    [record] = await sidecar.records()
    assert record["pub"]["facts"]["revision"] == revision


async def test_known_sessions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_IN_MEMORY", 5), ("MAX_ON_DISK", 20), ("_TRIM_EVERY", 10)):
        monkeypatch.setattr(sessions_module, name, value)
    async with fake_control_api() as control:
        control.create_tenant()
        for number in range(60):
            session_id = f"s-{number}"
            expires = rfc3339(FAR + number * 1_000_000)
            control.sessions[session_id] = foreign(
                session_id=session_id, agent_id=AGENT, expires_at=expires
            )
        async with running_sidecar(tmp_path, control) as running:
            for number in range(60):
                await running.evaluate(session_id=f"s-{number}")
            connection = running.parts.cache_file.connection
            kept = [row[0] for row in connection.execute("SELECT session_id FROM sessions")]
            assert sorted(kept) == sorted(f"s-{number}" for number in range(40, 60))
            claims = len(control.claims)
            await running.evaluate(session_id="s-50")
            assert len(control.claims) == claims
            await running.evaluate(session_id="s-1")
            assert len(control.claims) == claims + 1


async def test_a_session_that_can_not_be_stored_delays_no_decision(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    sidecar.parts.cache_file.connection.execute("DROP TABLE sessions")
    assert (await sidecar.evaluate(session_id="s-1"))["decision"] == "ALLOW"
    assert (await sidecar.evaluate(session_id="s-1"))["decision"] == "ALLOW"
    assert len(control.claims) == 1


async def test_a_call_that_fails_the_first_checks_waits_for_no_claim(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    """The first four checks need no session: what they deny is denied without asking."""
    await control.stop()
    answer = await sidecar.evaluate(session_id="s-new", agent_id="agt_unknown")
    assert answer["policy_name"] == "agent_not_registered"


async def test_a_foreign_session_is_asked_about_again_after_a_while(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with fake_control_api() as control:
        control.create_tenant()
        control.sessions["s-1"] = foreign()
        async with running_sidecar(
            tmp_path, control, clock=clock, staleness_seconds=3600
        ) as running:
            sessions = running.parts.enforcer.preview.sessions
            sessions.receives_revocations_of = lambda agent_id: agent_id == AGENT
            mismatch = await running.evaluate(session_id="s-1")
            control.sessions["s-1"] = foreign("revoked")
            soon = await running.evaluate(session_id="s-1")
            clock.ahead = sessions_module.FOREIGN_SECONDS + 0.1
            later = await running.evaluate(session_id="s-1")
            assert [each["policy_name"] for each in (mismatch, soon, later)] == [
                "session_agent_mismatch",
                "session_agent_mismatch",
                "session_revoked",
            ]
            # Its own is remembered, on disk too.
            for _ in range(2):
                assert (await running.evaluate(session_id="s-own"))["decision"] == "ALLOW"
            assert [each["session_id"] for each in control.claims] == ["s-1", "s-1", "s-own"]
            stored = running.parts.cache_file.connection.execute("SELECT session_id FROM sessions")
            assert stored.fetchall() == [("s-own",)]
