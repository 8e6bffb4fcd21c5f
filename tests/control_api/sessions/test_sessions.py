"""Sessions over the API: owned by the first claim, listed, shown, revoked for good."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

MINUTE = 60


def statuses(api: ControlApi, query: str = "") -> dict[str, str]:
    found = api.admin("GET", f"/v1/sessions?{query}")
    return {each["session_id"]: each["status"] for each in found}


def test_a_session_shows_how_many_decisions_it_had_and_the_last(api: ControlApi) -> None:
    api.approved("a-shown")
    api.evaluate(session_id="s-shown", user_id="ann", agent_id="a-shown")
    api.evaluate(session_id="s-shown", source_id="payroll", agent_id="a-shown")
    last = api.evaluate(session_id="s-shown", user_id="bob")
    assert last["policy_name"] == "session_agent_mismatch"
    shown = api.admin("GET", "/v1/sessions/s-shown")
    events = {each["event_id"]: each["timestamp"] for each in api.events("?session_id=s-shown")}
    assert shown == {
        "session_id": "s-shown",
        "agent_role": "support",
        "status": "active",
        "created_at": shown["created_at"],
        "expires_at": shown["expires_at"],
        "agent_id": "a-shown",
        "user_id": "ann",
        "revoked_at": None,
        "revocation_reason": None,
        "events": 3,
        "allowed": 1,
        "denied": 2,
        "last_active": events[last["event_id"]],
    }
    assert shown["created_at"] <= min(events.values())
    assert statuses(api)["s-shown"] == "active"
    for path in ("/v1/sessions/none", "/v1/audit/sessions/none"):
        assert api.call("GET", path).status == 404


def test_a_session_stays_revoked_or_expires_and_is_listed_so(fresh: ControlApi) -> None:
    for session in ("s1", "s2"):
        fresh.evaluate(session_id=session)
    answer = fresh.call("DELETE", "/v1/sessions/s2?reason=key%20lost")
    revoked = answer.body
    shown = (answer.status, revoked["status"], revoked["revocation_reason"])
    assert shown == (200, "revoked", "key lost")
    assert fresh.evaluate(session_id="s2")["policy_name"] == "session_revoked"
    again = fresh.admin("DELETE", "/v1/sessions/s2?reason=other")
    kept = ("status", "revoked_at", "revocation_reason")
    assert [again[name] for name in kept] == [revoked[name] for name in kept]
    changes = fresh.admin("GET", "/v1/audit/changes?object_type=session")
    assert [each["object_id"] for each in changes] == ["s2"]
    fresh.time.ahead = 24 * 60 * MINUTE - 5
    assert fresh.evaluate(session_id="s1")["decision"] == "ALLOW"
    assert statuses(fresh, "status=active") == {"s1": "active"}
    fresh.time.ahead = 24 * 60 * MINUTE + 1
    assert fresh.evaluate(session_id="s1")["policy_name"] == "session_expired"
    assert fresh.evaluate(session_id="s2")["policy_name"] == "session_revoked"
    assert statuses(fresh, "status=active") == {}
    assert statuses(fresh, "status=expired") == {"s1": "expired"}
    assert statuses(fresh, "status=revoked") == {"s2": "revoked"}
    assert fresh.call("DELETE", "/v1/sessions/none").status == 404


@pytest.mark.deep(stands_in="test_a_session_shows_how_many_decisions_it_had_and_the_last")
def test_a_session_is_shown_with_its_decisions(either_tenant: ControlApi) -> None:
    either_tenant.approved("a1")
    first = either_tenant.evaluate(session_id="s1", agent_id="a1", user_id="ann")
    either_tenant.evaluate(session_id="s1", agent_id="a1", source_id="payroll")
    last = either_tenant.evaluate(session_id="s1")
    assert last["policy_name"] == "session_agent_mismatch"
    shown = either_tenant.admin("GET", "/v1/sessions/s1")
    events = {each["event_id"]: each for each in either_tenant.events()}
    assert shown == {
        "session_id": "s1",
        "agent_role": "support",
        "status": "active",
        "created_at": shown["created_at"],
        "expires_at": shown["expires_at"],
        "agent_id": "a1",
        "user_id": "ann",
        "revoked_at": None,
        "revocation_reason": None,
        "events": 3,
        "allowed": 1,
        "denied": 2,
        "last_active": events[last["event_id"]]["timestamp"],
    }
    assert shown["created_at"] <= events[first["event_id"]]["timestamp"]
    assert statuses(either_tenant) == {"s1": "active"}
    assert either_tenant.call("GET", "/v1/sessions/none").status == 404
    assert either_tenant.call("GET", "/v1/audit/sessions/none").status == 404


@pytest.mark.deep(stands_in="test_a_session_stays_revoked_or_expires_and_is_listed_so")
def test_a_revocation_is_in_force_before_its_answer_and_permanent(either: ControlApi) -> None:
    either.evaluate(session_id="s1")
    answer = either.call("DELETE", "/v1/sessions/s1?reason=key%20lost")
    revoked = answer.body
    assert (answer.status, revoked["status"]) == (200, "revoked")
    assert revoked["revocation_reason"] == "key lost"
    assert either.evaluate(session_id="s1")["policy_name"] == "session_revoked"
    entries = either.verified()["total"]
    again = either.admin("DELETE", "/v1/sessions/s1?reason=other")
    kept = ("status", "revoked_at", "revocation_reason")
    assert [again[name] for name in kept] == [revoked[name] for name in kept]
    assert either.verified()["total"] == entries
    either.time.ahead = 2 * 24 * 60 * MINUTE
    assert either.evaluate(session_id="s1")["policy_name"] == "session_revoked"
    assert either.call("DELETE", "/v1/sessions/none").status == 404
    assert either.verified()["valid"]


@pytest.mark.deep(stands_in="test_a_session_stays_revoked_or_expires_and_is_listed_so")
def test_a_session_expires_to_the_microsecond(fresh: ControlApi) -> None:
    fresh.evaluate(session_id="s1")
    fresh.time.ahead = 24 * 60 * MINUTE - 5
    assert fresh.evaluate(session_id="s1")["decision"] == "ALLOW"
    assert statuses(fresh, "status=active") == {"s1": "active"}
    fresh.time.ahead = 24 * 60 * MINUTE + 1
    assert fresh.evaluate(session_id="s1")["policy_name"] == "session_expired"
    assert statuses(fresh, "status=active") == {}
    assert statuses(fresh, "status=expired") == {"s1": "expired"}


def test_lists_are_filtered_and_paged(tenant: ControlApi) -> None:
    names = [f"s{number}" for number in range(7)]
    for name in names:
        tenant.evaluate(session_id=name)
    tenant.evaluate(session_id="other", agent_role="nobody")
    tenant.admin("DELETE", "/v1/sessions/s3")
    pages = list(tenant.pages("/v1/sessions?limit=3"))
    shown = [row["session_id"] for page in pages for row in page]
    assert shown == ["other", *reversed(names)]
    assert statuses(tenant, "agent_role=nobody") == {"other": "active"}
    assert statuses(tenant, "status=revoked") == {"s3": "revoked"}
    assert tenant.call("GET", "/v1/sessions?status=gone").status == 422


@pytest.mark.deep(
    stands_in="tests/control_api/store/queries/test_sessions.py::test_one_of_many_concurrent_claims_owns_the_session"
)
def test_only_one_of_many_agents_that_claim_a_session_at_once_owns_it(
    either_tenant: ControlApi,
) -> None:
    agents = [f"a{number}" for number in range(8)]
    for agent in agents:
        either_tenant.approved(agent)
    answers: dict[str, Any] = {}

    def claim(agent: str) -> None:
        answers[agent] = either_tenant.evaluate(session_id="race", agent_id=agent)

    threads = [threading.Thread(target=claim, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owner = either_tenant.admin("GET", "/v1/sessions/race")["agent_id"]
    for agent, answer in answers.items():
        expected = ("ALLOW", "support-reads") if agent == owner else None
        decided = (answer["decision"], answer["policy_name"])
        assert decided == (expected or ("DENY", "session_agent_mismatch"))


@pytest.mark.deep(
    stands_in="tests/control_api/tenants/test_tenants.py::test_another_process_learns_of_a_deactivation_within_a_second"
)
def test_a_revocation_by_another_process_is_seen_within_a_second(tmp_path: Any) -> None:
    with running_control_api(tmp_path) as one:
        other = ControlApi(tmp_path, policies=None)
        other.start()
        try:
            assert other.evaluate(session_id="s1")["decision"] == "ALLOW"
            one.admin("DELETE", "/v1/sessions/s1")
            until(
                "the other process knows of the revocation",
                lambda: other.evaluate(session_id="s1")["policy_name"] == "session_revoked",
            )
        finally:
            other.stop()


@pytest.mark.parametrize("query", ["reason=%00", "reason=" + "x" * 4097, "why=x"])
def test_an_invalid_reason_is_422(api: ControlApi, query: str) -> None:
    api.evaluate(session_id="kept")
    assert api.call("DELETE", f"/v1/sessions/kept?{query}").status == 422
    assert statuses(api)["kept"] == "active"
