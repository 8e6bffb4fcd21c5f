"""Candidates by the API: published, evaluated beside the active policies, counted, promoted and
dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.control_api.edge.refused_requests import raw_request
from tests.support.control_api import POLICY, ControlApi

ROUTE = "/v1/policies/candidates"
READS = POLICY | {"industry": "demo", "process_group": "support"}
STRICT = READS | {"denied_sources": ["payroll", "contracts"]}
OPEN = READS | {"name": "support-all", "allowed_sources": ["*"], "denied_sources": []}


def published(api: ControlApi, name: str, *policies: dict[str, Any]) -> Any:
    return api.admin("PUT", f"{ROUTE}/{name}", {"policies": list(policies)})


def counts(api: ControlApi, name: str) -> dict[str, int]:
    shown = api.admin("GET", f"{ROUTE}/{name}")
    listed = {each["name"]: each for each in api.admin("GET", ROUTE)}
    assert listed[name] == {key: value for key, value in shown.items() if key != "groups"}
    members = ("decided", "same", "newly_denied", "newly_allowed", "error")
    return {member: shown[member] for member in members}


def entries(api: ControlApi, kind: str = "decision") -> list[dict[str, Any]]:
    export = api.call("GET", "/v1/audit/export").raw.splitlines()
    found = [json.loads(line).get("entry") for line in export]
    return [entry for entry in found if entry and entry["kind"] == kind]


@pytest.mark.deep(stands_in="test_changes_of_candidates_are_recorded")
def test_a_candidate_is_evaluated_beside_the_active_policies(either_tenant: ControlApi) -> None:
    api = either_tenant
    before = api.evaluate(source_id="contracts")
    made = published(api, "strict", STRICT)
    assert made["policies"] == 1
    assert published(api, "open", OPEN)["revision"] > made["revision"]
    told = [api.evaluate(source_id=each) for each in ("contracts", "handbook", "payroll")]
    assert [each["decision"] for each in told] == ["ALLOW", "ALLOW", "DENY"]
    assert {**told[0], "event_id": ""} == {**before, "event_id": ""}
    of_event = {entry["eid"]: entry["pub"] for entry in entries(api)}
    assert "candidates" not in of_event[before["event_id"]]
    assert "candidates" not in of_event[told[1]["event_id"]]
    assert of_event[told[0]["event_id"]]["candidates"] == [
        {
            "check": "source",
            "decision": "DENY",
            "name": "strict",
            "policy_name": "support-reads",
            "revision": made["revision"],
        }
    ]
    (allowed,) = of_event[told[2]["event_id"]]["candidates"]
    assert (allowed["name"], allowed["decision"]) == ("open", "ALLOW")
    assert counts(api, "strict") == {
        "decided": 3, "same": 2, "newly_denied": 1, "newly_allowed": 0, "error": 0,
    }  # fmt: skip
    (group,) = api.admin("GET", f"{ROUTE}/open")["groups"]
    assert group.pop("first") == group.pop("last")
    assert group == {
        "direction": "newly_allowed",
        "agent_role": "support",
        "source_id": "payroll",
        "policy_name_before": "support-reads",
        "policy_name_after": "support-all",
        "count": 1,
        "example_event_ids": [told[2]["event_id"]],
    }
    api.verified()


@pytest.mark.deep(stands_in="test_changes_of_candidates_are_recorded")
def test_the_same_policies_again_change_nothing_and_others_begin_anew(
    either_tenant: ControlApi,
) -> None:
    api = either_tenant
    made = published(api, "next", STRICT)
    api.evaluate(source_id="contracts")
    changes = len(entries(api, "change"))
    assert published(api, "next", STRICT) == made
    assert len(entries(api, "change")) == changes
    assert counts(api, "next")["newly_denied"] == 1
    again = published(api, "next", READS)
    assert again["revision"] > made["revision"]
    assert set(counts(api, "next").values()) == {0}
    api.evaluate(source_id="contracts")
    assert counts(api, "next") == {
        "decided": 1, "same": 1, "newly_denied": 0, "newly_allowed": 0, "error": 0,
    }  # fmt: skip


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_promotion.py::test_each_decision_under_load_is_by_one_set_or_the_other"
)
def test_a_promotion_makes_the_candidate_the_active_set(either: ControlApi) -> None:
    api = either
    kept = api.admin("GET", "/v1/policies")[0]
    published(api, "next", STRICT, OPEN | {"agent_role": "auditor", "denied_sources": ["payroll"]})
    done = api.admin("POST", f"{ROUTE}/next/promote")
    assert done == {
        "name": "next",
        "added": ["support-all"],
        "updated": ["support-reads"],
        "unchanged": [],
        "removed": [],
    }
    active = {each["name"]: each for each in api.admin("GET", "/v1/policies")}
    assert active["support-reads"]["policy_id"] == kept["policy_id"]
    assert active["support-reads"]["version"] == kept["version"] + 1
    assert all(each["user_modified"] for each in active.values())
    assert api.evaluate(source_id="contracts")["decision"] == "DENY"
    assert api.evaluate(source_id="x", agent_role="auditor")["decision"] == "ALLOW"
    assert api.admin("GET", ROUTE) == []
    assert api.call("GET", f"{ROUTE}/next").status == 404
    history = api.admin("GET", f"/v1/policies/{kept['policy_id']}/history")
    assert [each["change"] for each in history] == ["updated", "added"]
    # The files neither bring back nor change what was promoted.
    assert api.admin("POST", "/v1/policies/reload")["skipped"] == ["support-reads"]
    published(api, "none")
    assert api.admin("POST", f"{ROUTE}/none/promote")["removed"] == [
        "support-all",
        "support-reads",
    ]
    assert api.admin("POST", "/v1/policies/reload")["skipped"] == ["support-reads"]
    assert api.admin("GET", "/v1/policies") == []
    assert api.evaluate(source_id="handbook")["policy_name"] == "default_deny"
    assert "candidates" not in str(entries(api)[-1])
    api.verified()


def test_at_most_three_candidates_exist_and_a_dropped_one_loses_its_documents(
    either_tenant: ControlApi,
) -> None:
    api = either_tenant
    for name in ("a", "b", "c"):
        published(api, name, OPEN)
    refused = api.call("PUT", f"{ROUTE}/d", {"policies": []})
    assert refused.status == 409
    assert "`a`, `b`, `c`" in refused.body["message"]
    published(api, "b", STRICT)
    assert api.call("DELETE", f"{ROUTE}/b").status == 200
    assert api.call("DELETE", f"{ROUTE}/b").status == 404
    assert [each["name"] for each in api.admin("GET", ROUTE)] == ["a", "c"]
    page = api.admin("GET", "/v1/sidecars/policy-set")
    held = {each["name"] for each in page["documents"] if each["digest"] is not None}
    assert {each for each in held if "candidate" in each} == {
        "candidate/a/support",
        "candidate/c/support",
    }
    published(api, "d", OPEN)


def test_changes_of_candidates_are_recorded(tenant: ControlApi) -> None:
    made = published(tenant, "next", STRICT)
    asked_for = tenant.evaluate(source_id="contracts")
    assert asked_for["decision"] == "ALLOW"
    (of_it,) = [each["pub"] for each in entries(tenant) if each["eid"] == asked_for["event_id"]]
    assert of_it["candidates"] == [
        {
            "check": "source",
            "decision": "DENY",
            "name": "next",
            "policy_name": "support-reads",
            "revision": made["revision"],
        }
    ]
    assert published(tenant, "next", STRICT) == made  # no change
    assert counts(tenant, "next")["newly_denied"] == 1
    assert published(tenant, "next", OPEN)["revision"] > made["revision"]
    assert set(counts(tenant, "next").values()) == {0}
    denied = tenant.evaluate(source_id="payroll")
    assert denied["decision"] == "DENY"
    (group,) = tenant.admin("GET", f"{ROUTE}/next")["groups"]
    assert group.pop("first") == group.pop("last")
    assert group == {
        "direction": "newly_allowed",
        "agent_role": "support",
        "source_id": "payroll",
        "policy_name_before": "support-reads",
        "policy_name_after": "support-all",
        "count": 1,
        "example_event_ids": [denied["event_id"]],
    }
    tenant.admin("DELETE", f"{ROUTE}/next")
    published(tenant, "next", OPEN)
    tenant.admin("POST", f"{ROUTE}/next/promote")
    changes = tenant.admin("GET", "/v1/audit/changes?object_type=candidate")
    assert [each["action"] for each in reversed(changes)] == [
        "published", "published", "dropped", "published", "promoted",
    ]  # fmt: skip
    assert all(each["object_id"] == "next" for each in changes)
    assert changes[-1]["after"]["name"] == "next"


@pytest.mark.deep(stands_in="test_only_the_reviewed_version_is_promoted")
def test_a_review_lists_what_a_promotion_would_change(either_tenant: ControlApi) -> None:
    api = either_tenant
    auditor = OPEN | {"name": "audit-all", "agent_role": "auditor", "max_sensitivity": "low"}
    published(api, "next", STRICT, auditor)
    path = f"{ROUTE}/next/review"
    shown = api.admin("GET", path)
    assert shown["newly_denied"][0]["sources"] == ["contracts"]
    assert {row["agent_role"] for row in shown["newly_allowed"]} == {"auditor"}
    names = {kind: shown[kind] for kind in ("added", "updated", "removed", "changed_since")}
    assert names == {
        "added": ["audit-all"], "updated": ["support-reads"], "removed": [], "changed_since": [],
    }  # fmt: skip
    assert shown["broken_guardrails"] == []
    never = {"name": "no-auditor", "never": {"roles": ["auditor"], "sources": ["payroll"]}}
    api.admin("POST", "/v1/guardrails", never)
    (broken,) = api.admin("GET", path)["broken_guardrails"]
    assert broken["guardrail"] == "no-auditor"
    assert broken["counterexample"]["source_id"] == "payroll"
    published(api, "next", READS)
    (policy,) = api.admin("GET", "/v1/policies")
    assert api.admin("GET", path)["newly_allowed"] == []
    api.admin("PUT", f"/v1/policies/{policy['policy_id']}", STRICT)
    shown = api.admin("GET", path)
    assert shown["changed_since"] == ["support"]
    assert shown["newly_allowed"][0]["sources"] == ["contracts"]


def test_only_the_reviewed_version_is_promoted(api: ControlApi) -> None:
    path = f"{ROUTE}/reviewed"

    def promote(version: str) -> int:
        return api.call("POST", f"{path}/promote", headers={"If-Match": version}).status

    published(api, "reviewed", STRICT)
    shown = api.admin("GET", f"{path}/review")
    assert [row["sources"] for row in shown["newly_denied"]] == [["contracts"]]
    names = [shown[kind] for kind in ("added", "updated", "removed", "changed_since")]
    assert names == [[], ["support-reads"], [], []]
    assert shown["newly_allowed"] == shown["broken_guardrails"] == []
    version = f'"{shown["version"]}"'
    published(api, "reviewed", STRICT, OPEN)
    assert promote(version) == 412
    never = {"name": "no-salaries", "never": {"sources": ["salaries"]}}
    api.admin("POST", "/v1/guardrails", never)
    shown = api.admin("GET", f"{path}/review")
    assert (shown["added"], shown["updated"]) == (["support-all"], ["support-reads"])
    assert {row["agent_role"] for row in shown["newly_allowed"]} == {"support"}
    (broken,) = shown["broken_guardrails"]
    assert broken["guardrail"] == "no-salaries"
    assert broken["counterexample"]["source_id"] == "salaries"
    api.admin("DELETE", "/v1/guardrails/no-salaries")
    version = f'"{api.admin("GET", f"{path}/review")["version"]}"'
    other = READS | {"name": "other", "agent_role": "other"}
    made = api.admin("POST", "/v1/policies", other)
    assert promote(version) == 412
    shown = api.admin("GET", f"{path}/review")
    assert shown["changed_since"] == ["other"]
    version = f'"{shown["version"]}"'
    api.admin("DELETE", f"/v1/policies/{made['policy_id']}")
    assert promote(version) == 412
    assert promote("version") == 422
    version = f'"{api.admin("GET", f"{path}/review")["version"]}"'
    assert promote(version) == 200


@pytest.mark.parametrize(
    ("policies", "complaint"),
    [
        ([STRICT, OPEN | {"max_sensitivity": "most"}], "policies.1 (`support-all`)"),
        ([STRICT, STRICT], "several policies have the name `support-reads`"),
        ([STRICT | {"name": "a", "allowed": []}], "policies.0 (`a`).allowed: is not a known"),
        ([{}], "policies.0.name: is required"),
        ({}, "policies:"),
        (None, "policies:"),
    ],
)
def test_a_faulty_policy_is_named(api: ControlApi, policies: Any, complaint: str) -> None:
    refused = api.call("PUT", f"{ROUTE}/faulty", {"policies": policies})
    assert refused.status == 422, refused.raw
    assert complaint in refused.body["details"]
    assert api.call("GET", f"{ROUTE}/faulty").status == 404


@pytest.mark.parametrize("name", ["A", "a%2Fb", "a b", "x" * 65, "-a", "é", "a%00"])
def test_a_name_that_no_document_may_have_is_refused(api: ControlApi, name: str) -> None:
    for method, rest in (("PUT", ""), ("GET", ""), ("DELETE", ""), ("POST", "/promote")):
        body: object = {"policies": []} if method == "PUT" else None
        path = f"{ROUTE}/" + name.replace(" ", "%20").replace("é", "%C3%A9") + rest
        assert api.call(method, path, body).status in (404, 422)
    assert api.admin("GET", ROUTE) == []


def test_a_set_of_megabytes_is_accepted_and_one_over_the_limit_refused(api: ControlApi) -> None:
    body = json.dumps({"policies": [OPEN]}).encode()
    taken = api.call("PUT", f"{ROUTE}/padded", raw=b" " * (2 * 1024 * 1024) + body)
    assert (taken.status, taken.body["policies"]) == (200, 1)
    api.admin("DELETE", f"{ROUTE}/padded")
    wide = [READS | {"name": f"p{n}", "allowed_sources": ["x" * 200] * 8} for n in range(25)]
    assert published(api, "wide", *wide)["policies"] == 25
    api.admin("DELETE", f"{ROUTE}/wide")
    head = f"PUT {ROUTE}/padded HTTP/1.1\r\nHost: x\r\nX-API-Key: {api.admin_key}\r\n"
    length = 32 * 1024 * 1024 + 1
    refused = raw_request(api, f"{head}Content-Length: {length}\r\n\r\n".encode())
    assert refused.startswith(b"HTTP/1.1 413 "), refused


@pytest.mark.deep(stands_in="test_a_set_of_megabytes_is_accepted_and_one_over_the_limit_refused")
def test_a_large_set_is_taken_and_a_larger_one_refused(api: ControlApi) -> None:
    many = [
        READS | {"name": f"p{n}", "agent_role": f"r{n % 50}", "allowed_sources": ["x" * 200] * 8}
        for n in range(1500)
    ]
    assert len(json.dumps(many)) > 2 * 1024 * 1024
    assert published(api, "large", *many)["policies"] == 1500
    refused = api.call("PUT", f"{ROUTE}/large", raw=b" " * (32 * 1024 * 1024 + 1))
    assert refused.status == 413
    api.admin("DELETE", f"{ROUTE}/large")
