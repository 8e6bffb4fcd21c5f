"""Sessions of evaluations: who claims one, who owns it, and how long it lives."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.control_api import ControlApi, running_control_api


@pytest.mark.deep(
    stands_in="tests/control_api/machines/test_sessions.py::test_any_sequence_of_calls_changes_sessions_as_the_model_predicts"
)
def test_a_session_belongs_to_the_agent_that_claimed_it(either: ControlApi) -> None:
    either.approved("a")
    either.approved("b")
    assert either.evaluate(session_id="s", agent_id="a")["decision"] == "ALLOW"
    assert either.evaluate(session_id="s", agent_id="a")["decision"] == "ALLOW"
    for other in ({"agent_id": "b"}, {}):
        denied = either.evaluate(session_id="s", **other)
        assert denied["policy_name"] == "session_agent_mismatch"
    either.restart()
    assert either.evaluate(session_id="s", agent_id="b")["policy_name"] == "session_agent_mismatch"
    assert either.evaluate(session_id="s", agent_id="a")["decision"] == "ALLOW"


def test_a_caller_that_fails_the_first_four_checks_claims_no_session(api: ControlApi) -> None:
    assert api.evaluate(session_id="s-free", agent_id="nobody")["decision"] == "DENY"
    api.approved("rightful")
    assert api.evaluate(session_id="s-free", agent_id="rightful")["decision"] == "ALLOW"


def test_a_denied_call_that_passes_the_first_four_claims_its_session(api: ControlApi) -> None:
    api.approved("first")
    denied = api.evaluate(session_id="s-denied", agent_id="first", source_id="payroll")
    assert denied["decision"] == "DENY"
    assert api.evaluate(session_id="s-denied")["policy_name"] == "session_agent_mismatch"


@pytest.mark.deep(stands_in="test_a_session_expires_after_the_minutes_of_the_setting")
def test_a_session_expires_for_good_and_is_recorded_as_expired(tmp_path: Any) -> None:
    with running_control_api(tmp_path, SLUICE_SESSION_TTL_MINUTES="10") as api:
        assert api.evaluate(session_id="s")["decision"] == "ALLOW"
        api.time.ahead = 9 * 60
        assert api.evaluate(session_id="s")["decision"] == "ALLOW"
        api.time.ahead = 10 * 60 + 1
        assert api.evaluate(session_id="s")["policy_name"] == "session_expired"
        api.restart()
        assert api.evaluate(session_id="s")["policy_name"] == "session_expired"
        api.verified()


def test_a_session_expires_after_the_minutes_of_the_setting(tmp_path: Any) -> None:
    with running_control_api(tmp_path, SLUICE_SESSION_TTL_MINUTES="10") as api:
        for minutes in (0, 9):
            api.time.ahead = minutes * 60
            assert api.evaluate(session_id="s")["decision"] == "ALLOW"
        api.time.ahead = 10 * 60 + 1
        assert api.evaluate(session_id="s")["policy_name"] == "session_expired"


def test_a_session_s_end_is_that_of_the_role_s_strictest_policy(api: ControlApi) -> None:
    lists = {"allowed_sources": ["*"], "denied_sources": [], "max_sensitivity": "critical"}
    for minutes in (60, 5):
        body = {"name": f"ttl-{minutes}", "agent_role": "brief", "session_ttl_minutes": minutes}
        api.admin("POST", "/v1/policies", body | lists)
    api.evaluate(agent_role="brief", session_id="s-brief")
    shown = api.admin("GET", "/v1/sessions/s-brief")
    begin, end = (datetime.fromisoformat(shown[each]) for each in ("created_at", "expires_at"))
    assert end - begin == timedelta(minutes=5)


@pytest.mark.deep(stands_in="test_a_session_s_end_is_that_of_the_role_s_strictest_policy")
def test_a_session_lives_as_long_as_the_role_s_strictest_policy_says(tmp_path: Any) -> None:
    policies = """\
policies:
  - {name: long, agent_role: support, allowed_sources: ["*"], denied_sources: [],
     max_sensitivity: critical, session_ttl_minutes: 60}
  - {name: short, agent_role: support, allowed_sources: ["*"], denied_sources: [],
     max_sensitivity: critical, session_ttl_minutes: 5}
"""
    with running_control_api(tmp_path, policies=policies) as api:
        assert api.evaluate(session_id="s")["policy_name"] == "long"
        api.time.ahead = 5 * 60 + 1
        assert api.evaluate(session_id="s")["policy_name"] == "session_expired"
