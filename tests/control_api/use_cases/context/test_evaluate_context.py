"""`POST /v1/context/evaluate`: all ten checks over HTTP, sessions, and the records of decisions."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_api.requests.retrieval import AskedRetrieval
from policies.ground.errors import Invalid
from policies.retrieval import parse_retrieval
from tests.control_api.centre import Centre, asked, running
from tests.properties import examples


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
    for status in (
        *(None, "pending_approval", "approved"),
        *("suspended", "approved", "suspended", "deprecated"),
    ):
        if status:
            fresh.admin("PATCH", "/v1/agents/a/status", {"status": status})
        seen.append(fresh.evaluate(agent_id="a")["policy_name"])
    assert seen == [
        *("agent_not_approved", "agent_not_approved", "support-reads"),
        *("agent_not_approved", "support-reads", "agent_not_approved", "agent_not_approved"),
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

    monkeypatch.setattr("control_api.domain.decisions.evaluate", broken)
    answer = centre.evaluate()
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
    monkeypatch.undo()
    event = centre.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
    assert event["policy_name"] == "evaluation_error"
    centre.verified()


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


def test_an_explanation_adds_a_member_and_changes_nothing_else(either: Centre) -> None:
    path = "/v1/context/evaluate?explain=true"
    allowed = either.call("POST", path, asked()).body
    assert list(allowed) == ["decision", "policy_name", "reason", "event_id", "explain"]
    assert allowed["explain"]["nearest_miss"] is None
    denied = either.call("POST", path, asked(source_id="payroll")).body
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
    plain = either.evaluate(source_id="payroll", explain=True)
    assert list(plain) == ["decision", "policy_name", "reason", "event_id"], "it is the query's"
    assert either.verified()["events"] == 3


@pytest.mark.parametrize("query", ["explain=1", "explain=", "explain=true&explain=true"])
def test_an_explanation_asked_for_otherwise_is_422(centre: Centre, query: str) -> None:
    assert centre.call("POST", f"/v1/context/evaluate?{query}", asked()).status == 422


def test_a_batch_is_answered_in_order_with_an_event_each(either: Centre) -> None:
    sources = [("handbook", "payroll")[number % 3 == 0] for number in range(100)]
    body = {"items": [asked(source_id=source) for source in sources]}
    results = either.admin("POST", "/v1/context/evaluate/batch", body)["results"]
    expected = ["DENY" if source == "payroll" else "ALLOW" for source in sources]
    assert [each["decision"] for each in results] == expected
    ids = [each["event_id"] for each in results]
    assert len(set(ids)) == 100
    found = {each["event_id"]: each for each in either.events("?limit=1000")}
    assert [found[each]["source_id"] for each in ids] == sources


@pytest.mark.parametrize(
    ("semantics", "decided"),
    [("all", 4), ("stop_on_deny", 3), ("stop_on_allow", 1)],
)
def test_a_batch_stops_where_it_is_told_to(fresh: Centre, semantics: str, decided: int) -> None:
    sources = ["handbook", "handbook", "payroll", "handbook"]
    items = [asked(source_id=source) for source in sources]
    body = {"items": items, "semantics": semantics}
    assert len(fresh.admin("POST", "/v1/context/evaluate/batch", body)["results"]) == decided
    assert fresh.verified()["events"] == decided


def test_a_batch_with_a_fault_is_422_as_a_whole(fresh: Centre) -> None:
    items: list[Any] = [asked(), asked(agent_role=None), 7, asked(sensitivity_level="x")]
    answer = fresh.call("POST", "/v1/context/evaluate/batch", {"items": items, "semantics": "y"})
    assert answer.status == 422
    named = [line.partition(":")[0] for line in answer.body["details"].splitlines()]
    assert named == [
        "semantics",
        "items.1.agent_role",
        "items.2.retrieval",
        "items.3.sensitivity_level",
    ]
    every: list[Any] = [[], [asked()] * 101, {}, None]
    for wrong in every:
        assert fresh.call("POST", "/v1/context/evaluate/batch", {"items": wrong}).status == 422
    assert fresh.verified()["events"] == 0


def test_a_batch_claims_a_session_for_its_first_item(fresh: Centre) -> None:
    fresh.approved("a1")
    fresh.approved("a2")
    items = [asked(session_id="s", agent_id=agent) for agent in ("a1", "a2", "a1")]
    results = fresh.admin("POST", "/v1/context/evaluate/batch", {"items": items})["results"]
    assert [each["decision"] for each in results] == ["ALLOW", "DENY", "ALLOW"]


def test_a_simulation_leaves_nothing(either: Centre) -> None:
    reader = either.new_key("read")
    before = either.verified()["total"]
    body = asked(session_id="never", source_id="payroll")
    answer = either.call("POST", "/v1/context/simulate", body, key=reader).body
    assert list(answer) == ["decision", "policy_name", "reason", "event_id"]
    assert (answer["decision"], answer["event_id"]) == ("DENY", None)
    told = either.call("POST", "/v1/context/simulate?explain=true", body, key=reader).body
    assert told["explain"]["nearest_miss"]["check"] == "source"
    assert told["event_id"] is None
    assert either.verified()["total"] == before
    assert either.call("GET", "/v1/sessions/never").status == 404
    either.evaluate(session_id="s")
    either.admin("DELETE", "/v1/sessions/s")
    answer = either.call("POST", "/v1/context/simulate", asked(session_id="s"), key=reader).body
    assert answer["policy_name"] == "session_revoked"


@pytest.mark.parametrize("query", ["", "?explain=true"])
def test_the_decision_stands_in_headers_too(centre: Centre, query: str) -> None:
    for source, decision in (("handbook", "ALLOW"), ("payroll", "DENY")):
        path, body = f"/v1/context/evaluate{query}", asked(source_id=source)
        answer = centre.call("POST", path, body)
        assert answer.headers["X-Sluice-Decision"] == answer.body["decision"] == decision
        assert answer.headers["X-Sluice-Event-Id"] == answer.body["event_id"]
        simulated = centre.call("POST", f"/v1/context/simulate{query}", body)
        assert simulated.body["decision"] == decision
        for name in ("X-Sluice-Decision", "X-Sluice-Event-Id"):
            assert name not in simulated.headers
    refused = centre.call("POST", "/v1/context/evaluate", {"agent_role": 1})
    assert refused.status == 422
    assert "X-Sluice-Decision" not in refused.headers
