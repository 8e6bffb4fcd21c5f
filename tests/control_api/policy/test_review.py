"""`POST /v1/policies/review`: everything about a change before it is made, and changes instead of
whole sets wherever policies are asked about."""

from __future__ import annotations

from typing import Any

import pytest

from control_api.policy.analyses.questions import MAX_SMALL_ANALYSES
from tests.support.control_api import POLICY, ControlApi

ROUTE = "/v1/policies/review"
NEW = {
    "name": "tellers-read",
    "agent_role": "teller",
    "allowed_sources": ["handbook"],
    "denied_sources": [],
    "max_sensitivity": "low",
}
TESTS = """\
tests:
  - name: tellers read the handbook
    ask: {agent_role: teller, source_id: handbook, sensitivity_level: low}
    expect: {decision: ALLOW}
  - name: support reads payroll
    ask: {agent_role: support, source_id: payroll, sensitivity_level: low}
    expect: {decision: ALLOW}
"""


def review(api: ControlApi, *policies: dict[str, Any], **more: Any) -> Any:
    answer = api.call("POST", ROUTE, {"policies": policies, "keep_others": True} | more)
    assert answer.status == 200, answer.raw
    return answer.body


def test_a_change_keeps_the_other_policies(api: ControlApi) -> None:
    found = review(api, NEW)
    assert [row["agent_role"] for row in found["newly_allowed"]] == ["teller"]
    assert found["newly_denied"] == found["broken_guardrails"] == []
    assert found["tests"] is found["answer"] is None
    whole = review(api, NEW, keep_others=False)
    assert {row["agent_role"] for row in whole["newly_denied"]} == {"support"}
    renamed = review(api, POLICY | {"name": "other"}, without=[POLICY["name"]])
    assert (renamed["newly_allowed"], renamed["newly_denied"]) == ([], [])
    gone = review(api, without=[POLICY["name"]])
    assert {row["agent_role"] for row in gone["newly_denied"]} == {"support"}
    # Candidates and impact runs take a change, too.
    change = {"policies": [NEW], "keep_others": True}
    assert api.admin("PUT", "/v1/policies/candidates/next", change)["policies"] == 2
    api.admin("POST", "/v1/policies/candidates/next/promote")
    added = {each["name"]: each["policy_id"] for each in api.admin("GET", "/v1/policies")}
    assert added.keys() == {POLICY["name"], NEW["name"]}
    api.admin("DELETE", f"/v1/policies/{added[NEW['name']]}")
    impact_id = api.admin("POST", "/v1/policies/impact", change)["impact_id"]
    api.admin("DELETE", f"/v1/policies/impact/{impact_id}")
    # A change has the answer of the whole set, also on a role that it leaves alone.
    ask = {"agent_role": "support", "user_id": "u", "source_id": "handbook"}
    ask |= {"sensitivity_level": "low"}
    higher, moved = NEW | {"max_sensitivity": "high"}, POLICY | {"agent_role": "auditor"}
    whole = review(api, higher, POLICY, keep_others=False, ask=ask)
    assert whole["answer"]["decision"] == "ALLOW"
    assert review(api, higher, ask=ask) == whole
    assert review(api, moved, ask=ask) == review(api, moved, keep_others=False, ask=ask)
    # The role that a policy leaves counts, even if it is not asked about.
    left = review(api, moved)
    assert {row["agent_role"] for row in left["newly_denied"]} == {"support"}
    assert left == review(api, moved, keep_others=False)
    never = {"name": "no-salaries", "never": {"roles": ["t*"], "sources": ["salaries"]}}
    api.admin("POST", "/v1/guardrails", never)
    wide = NEW | {"allowed_sources": ["*"]}
    by_roles = review(api, wide, ask=ask)
    assert by_roles == review(api, wide, POLICY, keep_others=False, ask=ask)
    api.admin("DELETE", "/v1/guardrails/no-salaries")
    assert [each["guardrail"] for each in by_roles["broken_guardrails"]] == ["no-salaries"]


def test_a_change_that_contradicts_itself_is_refused(api: ControlApi) -> None:
    for body in (
        {"policies": [], "without": ["a"]},
        {"policies": [NEW], "keep_others": True, "without": [NEW["name"]]},
    ):
        answer = api.call("POST", ROUTE, body)
        assert (answer.status, "`without`" in answer.body["details"]) == (422, True)


def test_a_review_names_each_broken_guardrail_with_a_request(tenant: ControlApi) -> None:
    for name, source in (("no-payroll", "payroll*"), ("quiet", "salaries")):
        rule = {"name": name, "never": {"sources": [source]}}
        tenant.admin("POST", "/v1/guardrails", rule)
    [broken] = review(tenant, NEW | {"allowed_sources": ["*roll"]})["broken_guardrails"]
    assert (broken["guardrail"], broken["decision"]) == ("no-payroll", "ALLOW")
    assert broken["counterexample"]["source_id"] == "payroll"
    assert review(tenant, NEW)["broken_guardrails"] == []


@pytest.mark.deep(stands_in="test_a_review_names_each_broken_guardrail_with_a_request")
def test_broken_guardrails_come_with_a_request_that_the_service_would_allow(
    fresh: ControlApi,
) -> None:
    api = fresh
    rule = {"name": "no-payroll", "never": {"sources": ["payroll*"]}}
    api.admin("POST", "/v1/guardrails", rule)
    api.admin("POST", "/v1/guardrails", {"name": "quiet", "never": {"sources": ["salaries"]}})
    wide = NEW | {"allowed_sources": ["*roll"]}
    [broken] = review(api, wide)["broken_guardrails"]
    assert (broken["guardrail"], broken["decision"]) == ("no-payroll", "ALLOW")
    refused = api.call("POST", "/v1/policies", wide)
    assert refused.status == 409, refused.raw
    assert broken["counterexample"]["source_id"] in refused.body["details"]
    assert review(api, NEW)["broken_guardrails"] == []


@pytest.mark.deep(stands_in="test_a_change_keeps_the_other_policies")
def test_a_change_reviewed_by_its_roles_has_the_answer_of_the_whole_set(fresh: ControlApi) -> None:
    api = fresh
    other = NEW | {"name": "auditors-read", "agent_role": "auditor", "allowed_sources": ["*"]}
    api.admin("POST", "/v1/policies", other | {"denied_sources": ["payroll*", "salaries"]})
    api.admin("POST", "/v1/policies", NEW)
    kept = [POLICY, other | {"denied_sources": ["payroll*", "salaries"]}]
    # More guardrails than are tried within the service's own process, from the second round on.
    for count in (3, MAX_SMALL_ANALYSES):
        for at in range(count):
            rule = {"roles": ["a*", "t*"], "sources": ["payroll*" if at else "salaries"]}
            named = {"name": f"rule-{count}-{at}", "never": rule}
            api.admin("POST", "/v1/guardrails", named)
        ask = {"agent_role": "support", "user_id": "u", "source_id": "handbook"}
        ask |= {"sensitivity_level": "low"}
        for changed in (
            NEW | {"max_sensitivity": "high"},
            NEW | {"allowed_sources": ["*"]},
            NEW | {"agent_role": "auditor", "allowed_sources": ["pay*"], "denied_sources": []},
            NEW | {"agent_role": "support", "denied_sources": ["handbook"]},
        ):
            by_roles = review(api, changed, ask=ask)
            whole = review(api, changed, *kept, keep_others=False, ask=ask)
            assert by_roles == whole, changed
            assert by_roles["newly_allowed"] or by_roles["newly_denied"]


def test_tests_and_a_request_are_decided_by_the_change(api: ControlApi) -> None:
    asked = {
        "agent_role": "teller",
        "user_id": "u",
        "source_id": "handbook",
        "sensitivity_level": "high",
    }
    found = review(api, NEW, tests=TESTS, ask=asked)
    assert (found["tests"]["cases"], found["tests"]["failed"]) == (2, 1)
    [failure] = found["tests"]["failures"]
    assert (failure["line"], failure["name"]) == (5, "support reads payroll")
    assert (failure["decision"], failure["check"]) == ("DENY", "source")
    answer = found["answer"]
    assert (answer["decision"], answer["check"]) == ("DENY", "sensitivity")
    assert len(answer["checks"]) == 10
    assert "`low`" in answer["nearest_miss"]["change"]
    assert review(api, NEW, ask=asked | {"sensitivity_level": "low"})["answer"]["check"] is None


def test_faults_of_tests_have_their_line(api: ControlApi) -> None:
    found = review(api, tests="tests:\n  - name: a\n    ask: {agent_role: r}\n")["tests"]
    assert (found["cases"], {each["line"] for each in found["faults"]}) == (0, {2, 3})
    for text, line in (("a: *b", 1), ("a:\n\t- b", 2), ("a:\n  b: \x00", 2), ("", 0)):
        [fault] = review(api, tests=text)["tests"]["faults"]
        assert (fault["line"], bool(fault["message"])) == (line, True), text
    bad = api.call("POST", ROUTE, {"policies": [], "keep_others": True, "ask": {"agent_role": 1}})
    assert bad.status == 422, bad.raw


def test_a_diff_compares_with_the_given_policies(api: ControlApi) -> None:
    body = {"policies": [NEW | {"max_sensitivity": "high"}], "against": [NEW]}
    found = api.admin("POST", "/v1/policies/diff", body)
    [row] = found["newly_allowed"]
    assert (row["levels"], found["newly_denied"]) == (["medium", "high"], [])


@pytest.mark.deep(stands_in="test_a_change_keeps_the_other_policies")
def test_candidates_and_impact_runs_take_a_change(fresh: ControlApi) -> None:
    api = fresh
    change = {"policies": [NEW], "keep_others": True}
    assert api.admin("PUT", "/v1/policies/candidates/next", change)["policies"] == 2
    api.admin("POST", "/v1/policies/impact", change)
    api.admin("POST", "/v1/policies/candidates/next/promote")
    names = {each["name"] for each in api.admin("GET", "/v1/policies")}
    assert names == {POLICY["name"], NEW["name"]}


def test_policies_are_found_by_parts_of_their_names_and_sources(either: ControlApi) -> None:
    api = either
    odd = NEW | {"name": "100%_Tellers", "allowed_sources": ['say "é"', "50%_off", "Ledger"]}
    made = api.admin("POST", "/v1/policies", odd)
    assert (made["file"], made["changed_by"].startswith("key_")) == (None, True)
    one = [made["policy_id"]]

    def found(query: str) -> list[str]:
        return [each["policy_id"] for each in api.admin("GET", f"/v1/policies?{query}")]

    for query in (
        "name=tellers", "name=100%25_T", "source=%22%C3%A9%22", "source=50%25_o", "source=edger",
    ):  # fmt: skip
        assert found(query) == one, query
    for query in ("name=100%25T", "source=5%25off", "source=ledger", "source=agent_role"):
        assert found(query) == [], query
    others = api.admin("GET", "/v1/policies?source=handbook")
    assert [(each["changed_by"], bool(each["file"])) for each in others] == [("disk", True)]
