"""`POST /v1/context/evaluate`: all ten checks over HTTP, explanations, and the recorded events."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_api.decisions.models import AskedRetrieval
from policies.ground.errors import Invalid
from policies.retrieval import parse_retrieval
from tests.support.control_api import ControlApi, asked, running_control_api
from tests.support.properties import examples


def test_an_allowed_retrieval_is_answered_with_the_policy_and_the_event(api: ControlApi) -> None:
    answer = api.evaluate(session_id="s-allowed", query="what is the return policy?")
    assert answer["decision"] == "ALLOW"
    assert answer["policy_name"] == "support-reads"
    assert list(answer) == ["decision", "policy_name", "reason", "event_id"]
    event = api.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
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
    api: ControlApi, changed: dict[str, Any], policy_name: str, check: str
) -> None:
    answer = api.evaluate(**changed)
    assert (answer["decision"], answer["policy_name"]) == ("DENY", policy_name)
    event = api.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
    assert event["check"] == check
    assert event["policy_name"] == policy_name


def test_a_call_denied_before_the_session_check_records_nothing_of_the_session(
    api: ControlApi,
) -> None:
    """Though this process knows the session, and looked it up."""
    owner = api.evaluate(session_id="s-owned")
    refused = api.evaluate(session_id="s-owned", agent_id="agt_unknown")
    assert refused["policy_name"] == "agent_not_registered"
    exported = api.call("GET", "/v1/audit/export", key=api.admin_key).raw.decode().splitlines()
    facts = {
        entry["eid"]: entry["pub"]["facts"]
        for entry in (json.loads(line).get("entry", {}) for line in exported)
        if entry.get("kind") == "decision"
    }
    assert "session" in facts[owner["event_id"]]
    assert "session" not in facts[refused["event_id"]]


@pytest.mark.deep(
    stands_in="tests/control_api/machines/test_agents.py::test_any_sequence_of_calls_changes_an_agent_as_the_model_predicts"
)
def test_an_agent_may_evaluate_from_its_approval_to_its_deprecation(tenant: ControlApi) -> None:
    tenant.admin("POST", "/v1/agents", {"agent_id": "a", "agent_role": "support"})
    seen = []
    for status in (
        *(None, "pending_approval", "approved"),
        *("suspended", "approved", "suspended", "deprecated"),
    ):
        if status:
            tenant.admin("PATCH", "/v1/agents/a/status", {"status": status})
        seen.append(tenant.evaluate(agent_id="a")["policy_name"])
    assert seen == [
        *("agent_not_approved", "agent_not_approved", "support-reads"),
        *("agent_not_approved", "support-reads", "agent_not_approved", "agent_not_approved"),
    ]


def test_an_agent_claims_only_its_permitted_roles(tenant: ControlApi) -> None:
    tenant.approved("both", role="support", permitted_roles=["support", "other"])
    tenant.approved("other", role="other")
    assert tenant.evaluate(agent_id="both")["decision"] == "ALLOW"
    assert tenant.evaluate(agent_id="other")["policy_name"] == "role_not_permitted"


def test_only_its_key_can_present_a_bound_agent(tenant: ControlApi) -> None:
    made = tenant.admin("POST", "/v1/keys", {"name": "its own", "scope": "evaluate"})
    tenant.approved("bound", bound_key_id=made["key_id"])
    assert tenant.evaluate(key=made["key"], agent_id="bound")["decision"] == "ALLOW"
    assert tenant.evaluate(agent_id="bound")["policy_name"] == "key_agent_binding"


def test_the_global_flag_demands_an_agent_id_before_any_other_check(tmp_path: Any) -> None:
    with running_control_api(tmp_path, SLUICE_REQUIRE_AGENT_ID="1") as api:
        api.approved("a")
        assert api.evaluate(agent_role="nobody")["policy_name"] == "agent_id_required"
        assert api.evaluate(agent_id="a")["decision"] == "ALLOW"
        api.environ["SLUICE_REQUIRE_AGENT_ID"] = "0"
        api.restart()
        assert api.evaluate()["decision"] == "ALLOW"


def test_evaluations_at_once_leave_a_gapless_and_valid_log(api: ControlApi) -> None:
    before, answered = api.verified(), list[str]()

    def client(number: int) -> None:
        said = api.evaluate(user_id=f"u{number}", session_id=f"s{number % 3}")
        answered.append(said["event_id"])

    threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert api.verified()["total"] == before["total"] + 64
    newest = api.events("?limit=64")
    assert {each["event_id"] for each in newest} == set(answered)
    last = before["last_seq"] + 64
    assert [each["seq"] for each in newest] == list(range(last, last - 64, -1))


@pytest.mark.deep(stands_in="test_evaluations_at_once_leave_a_gapless_and_valid_log")
def test_many_concurrent_clients_leave_a_gapless_and_valid_log(either_tenant: ControlApi) -> None:
    key, before = either_tenant.new_key(), either_tenant.verified()["total"]
    each, answered = 20, []

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", either_tenant.port, timeout=60)
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
    report = either_tenant.verified()
    assert report["total"] == before + len(answered)
    events = [
        event for page in either_tenant.pages("/v1/audit/events?limit=1000") for event in page
    ]
    assert {event["event_id"] for event in events} == set(answered)
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))


def test_unknown_fields_are_ignored(api: ControlApi) -> None:
    assert api.evaluate(colour="blue", explain=True)["decision"] == "ALLOW"
    answer = api.call("POST", "/v1/context/evaluate?trace=1", asked())
    assert answer.status == 200


def test_an_evaluation_that_fails_denies_and_is_recorded(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a check raised")

    monkeypatch.setattr("control_api.decisions.operations.evaluate", broken)
    answer = api.evaluate()
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
    monkeypatch.undo()
    event = api.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
    assert event["policy_name"] == "evaluation_error"
    api.verified()


FIELDS = [name for name in AskedRetrieval.model_fields if name not in AskedRetrieval.in_query]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(["low", "critical", "LOW", "", "a\x00", "a" * 256, "a" * 257, "f" * 64, "x y"]),
    st.lists(st.text(max_size=3), max_size=2),
    st.text(max_size=20),
)


@examples(400)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES), st.booleans())
def test_the_model_accepts_what_the_parser_accepts(given_: dict[str, Any], whole: bool) -> None:
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


def test_an_explanation_adds_a_member_and_changes_nothing_else(either_tenant: ControlApi) -> None:
    path = "/v1/context/evaluate?explain=true"
    allowed = either_tenant.call("POST", path, asked()).body
    assert list(allowed) == ["decision", "policy_name", "reason", "event_id", "explain"]
    assert allowed["explain"]["nearest_miss"] is None
    denied = either_tenant.call("POST", path, asked(source_id="payroll")).body
    checks = denied["explain"]["checks"]
    assert [check["outcome"] for check in checks][-2:] == ["failed", "not_reached"]
    assert checks[8] == {
        "check": "source",
        "outcome": "failed",
        "facts": {"policy_name": "support-reads", "source_id": "payroll"},
    }
    assert denied["explain"]["nearest_miss"] == {
        "check": "source",
        "policy_name": "support-reads",
        "change": "take `payroll` out of `denied_sources` of policy `support-reads`; and "
        "add `payroll` to `allowed_sources` of policy `support-reads`",
    }
    plain = either_tenant.evaluate(source_id="payroll", explain=True)
    assert list(plain) == ["decision", "policy_name", "reason", "event_id"], "it is the query's"
    assert either_tenant.verified()["events"] == 3


@pytest.mark.parametrize("query", ["explain=1", "explain=", "explain=true&explain=true"])
def test_an_invalid_explain_parameter_is_refused_with_422(api: ControlApi, query: str) -> None:
    assert api.call("POST", f"/v1/context/evaluate?{query}", asked()).status == 422


@pytest.mark.parametrize("query", ["", "?explain=true"])
def test_the_decision_is_also_in_headers(api: ControlApi, query: str) -> None:
    for source, decision in (("handbook", "ALLOW"), ("payroll", "DENY")):
        path, body = f"/v1/context/evaluate{query}", asked(source_id=source)
        answer = api.call("POST", path, body)
        assert answer.headers["X-Sluice-Decision"] == answer.body["decision"] == decision
        assert answer.headers["X-Sluice-Event-Id"] == answer.body["event_id"]
        simulated = api.call("POST", f"/v1/context/simulate{query}", body)
        assert simulated.body["decision"] == decision
        for name in ("X-Sluice-Decision", "X-Sluice-Event-Id"):
            assert name not in simulated.headers
    refused = api.call("POST", "/v1/context/evaluate", {"agent_role": 1})
    assert refused.status == 422
    assert "X-Sluice-Decision" not in refused.headers
