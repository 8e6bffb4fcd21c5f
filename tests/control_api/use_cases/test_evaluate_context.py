"""`POST /v1/context/evaluate`: all ten checks over HTTP, sessions, and a record for each answer."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_api.use_cases.evaluate_context import AskedRetrieval
from policies.ground.errors import Invalid
from policies.retrieval import parse_retrieval
from tests.control_api.centre import Centre, asked, running


def test_an_allowed_retrieval_is_answered_with_the_policy_and_the_event(centre: Centre) -> None:
    answer = centre.evaluate(session_id="s-allowed", query="what is the return policy?")
    assert answer["decision"] == "ALLOW"
    assert answer["policy_name"] == "support-reads"
    assert list(answer) == ["decision", "policy_name", "reason", "event_id"]
    event = centre.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
    assert event["decision"] == "ALLOW"
    assert event["reason"] == answer["reason"]
    assert event["query"] == "what is the return policy?"
    assert event["user_id"] == "ann"
    assert event["source_type"] == "api"
    assert event["pii_masked"] is False


@pytest.mark.parametrize(
    ("changed", "policy_name", "check"),
    [
        ({"agent_id": "agt_unknown"}, "agent_not_registered", "registry"),
        ({"agent_role": "stranger"}, "default_deny", "policy_exists"),
        ({"task_type": "marketing"}, "support-reads", "task"),
        ({"source_id": "payroll"}, "support-reads", "source"),
        ({"source_id": "elsewhere"}, "support-reads", "source"),
        ({"sensitivity_level": "critical"}, "support-reads", "sensitivity"),
    ],
)
def test_a_failed_check_denies_with_status_200_and_is_recorded(
    centre: Centre, changed: dict[str, Any], policy_name: str, check: str
) -> None:
    answer = centre.evaluate(**changed)
    assert (answer["decision"], answer["policy_name"]) == ("DENY", policy_name)
    event = centre.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
    assert event["check"] == check
    assert event["policy_name"] == policy_name


def test_an_agent_may_evaluate_from_its_approval_to_its_deprecation(fresh: Centre) -> None:
    fresh.admin("POST", "/v1/agents", {"agent_id": "a", "agent_role": "support"})
    seen = []
    for status in (None, "pending_approval", "approved", "deprecated"):
        if status:
            fresh.admin("PATCH", "/v1/agents/a/status", {"status": status})
        seen.append(fresh.evaluate(agent_id="a")["policy_name"])
    assert seen == [
        "agent_not_approved",
        "agent_not_approved",
        "support-reads",
        "agent_not_approved",
    ]


def test_an_agent_claims_only_its_permitted_roles(fresh: Centre) -> None:
    fresh.approved("both", role="support", permitted_roles=["support", "other"])
    fresh.approved("other", role="other")
    assert fresh.evaluate(agent_id="both")["decision"] == "ALLOW"
    assert fresh.evaluate(agent_id="other")["policy_name"] == "role_not_permitted"


def test_an_agent_bound_to_a_key_is_presented_by_that_key_alone(fresh: Centre) -> None:
    made = fresh.admin("POST", "/v1/keys", {"name": "its own", "scope": "evaluate"})
    fresh.approved("bound", bound_key_id=made["key_id"])
    assert fresh.evaluate(key=made["key"], agent_id="bound")["decision"] == "ALLOW"
    assert fresh.evaluate(agent_id="bound")["policy_name"] == "key_agent_binding"


def test_the_global_flag_demands_an_agent_id_before_any_other_check(tmp_path: Any) -> None:
    with running(tmp_path, SLUICE_REQUIRE_AGENT_ID="1") as centre:
        centre.approved("a")
        assert centre.evaluate(agent_role="nobody")["policy_name"] == "agent_id_required"
        assert centre.evaluate(agent_id="a")["decision"] == "ALLOW"
        centre.environ["SLUICE_REQUIRE_AGENT_ID"] = "0"
        centre.restart()
        assert centre.evaluate()["decision"] == "ALLOW"


def test_a_session_belongs_to_who_claimed_it(either: Centre) -> None:
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


def test_who_fails_the_first_four_checks_claims_no_session(centre: Centre) -> None:
    assert centre.evaluate(session_id="s-free", agent_id="nobody")["decision"] == "DENY"
    centre.approved("rightful")
    assert centre.evaluate(session_id="s-free", agent_id="rightful")["decision"] == "ALLOW"


def test_a_denied_call_that_passes_the_first_four_claims_its_session(centre: Centre) -> None:
    centre.approved("first")
    denied = centre.evaluate(session_id="s-denied", agent_id="first", source_id="payroll")
    assert denied["decision"] == "DENY"
    assert centre.evaluate(session_id="s-denied")["policy_name"] == "session_agent_mismatch"


def test_a_session_expires_for_good_and_is_recorded_as_expired(tmp_path: Any) -> None:
    with running(tmp_path, SLUICE_SESSION_TTL_MINUTES="10") as centre:
        assert centre.evaluate(session_id="s")["decision"] == "ALLOW"
        centre.time.ahead = 9 * 60
        assert centre.evaluate(session_id="s")["decision"] == "ALLOW"
        centre.time.ahead = 10 * 60 + 1
        assert centre.evaluate(session_id="s")["policy_name"] == "session_expired"
        centre.restart()
        assert centre.evaluate(session_id="s")["policy_name"] == "session_expired"
        centre.verified()


def test_the_smallest_life_of_the_role_s_policies_is_the_session_s(tmp_path: Any) -> None:
    policies = """\
policies:
  - {name: long, agent_role: support, allowed_sources: ["*"], denied_sources: [],
     max_sensitivity: critical, session_ttl_minutes: 60}
  - {name: short, agent_role: support, allowed_sources: ["*"], denied_sources: [],
     max_sensitivity: critical, session_ttl_minutes: 5}
"""
    with running(tmp_path, policies=policies) as centre:
        assert centre.evaluate(session_id="s")["policy_name"] == "long"
        centre.time.ahead = 5 * 60 + 1
        assert centre.evaluate(session_id="s")["policy_name"] == "session_expired"


def test_one_of_many_agents_that_claim_a_session_at_once_owns_it(either: Centre) -> None:
    agents = [either.approved(f"racer-{number}") for number in range(8)]
    answers: dict[str, str] = {}

    def claim(agent_id: str) -> None:
        answer = either.evaluate(session_id="race", agent_id=agent_id)
        answers[agent_id] = answer["policy_name"]

    threads = [threading.Thread(target=claim, args=(agent_id,)) for agent_id in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = sorted(answers.values())
    assert names == ["session_agent_mismatch"] * 7 + ["support-reads"]


def test_64_clients_at_once_leave_a_gapless_and_valid_log(either: Centre) -> None:
    key, before = either.new_key(), either.verified()["total"]
    each, answered = 20, []

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", either.port, timeout=60)
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        for turn in range(each):
            body = json.dumps(asked(user_id=f"u{number}", session_id=f"s{turn}"))
            connection.request("POST", "/v1/context/evaluate", body, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            assert answer.status == 200, said
            answered.append(said["event_id"])
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answered) == 64 * each
    report = either.verified()
    assert report["total"] == before + len(answered)
    events = [event for page in either.pages("/v1/audit/events?limit=1000") for event in page]
    assert {event["event_id"] for event in events} == set(answered)
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))


def test_unknown_fields_are_passed_over(centre: Centre) -> None:
    assert centre.evaluate(colour="blue", explain=True)["decision"] == "ALLOW"
    answer = centre.call("POST", "/v1/context/evaluate?trace=1", asked())
    assert answer.status == 200


def test_an_evaluation_that_fails_denies_and_is_recorded(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a check raised")

    monkeypatch.setattr("control_api.use_cases.evaluate_context.evaluate", broken)
    answer = centre.evaluate()
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
    monkeypatch.undo()
    event = centre.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
    assert event["policy_name"] == "evaluation_error"
    centre.verified()


FIELDS = (*AskedRetrieval.model_fields, "unknown")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(["low", "critical", "LOW", "", "a\x00", "a" * 256, "a" * 257, "f" * 64, "x y"]),
    st.lists(st.text(max_size=3), max_size=2),
    st.text(max_size=20),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES), st.booleans())
def test_the_description_takes_what_the_reader_takes(given_: dict[str, Any], whole: bool) -> None:
    body = {**asked(), **given_} if whole else given_
    try:
        parse_retrieval(body)
        read = True
    except Invalid:
        read = False
    described = not _fails(body)
    assert read == described, body


def _fails(body: dict[str, Any]) -> bool:
    try:
        AskedRetrieval.model_validate(body)
    except ValueError:
        return True
    return False
