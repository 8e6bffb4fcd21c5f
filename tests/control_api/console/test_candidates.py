"""Candidates in the console: created from a text, reviewed, promoted, discarded, and refused."""

from __future__ import annotations

import json

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi

WIDER = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, contracts, payroll, "rest://files/*"]
    denied_sources: []
    max_sensitivity: high
    denied_tasks: [marketing]
"""
ONE = """\
name: support-reads
agent_role: support
allowed_sources: [handbook, payroll]
denied_sources: []
max_sensitivity: low
"""
MENDED = WIDER.replace("contracts, payroll", "contracts, press")
NEVER = {"name": "payroll-stays-closed", "never": {"sources": ["payroll"]}}
FORM = "/console/policies/candidates/new"


def created(console: Visitor, name: str, policies: str, **fields: str) -> Shown:
    form = console.get(FORM)
    sent = {"name": name, "policies": policies, **fields}
    return console.submit(form, "/console/candidate/create", **sent)


def review(console: Visitor, name: str) -> Shown:
    return console.get(f"/console/policies/candidate/review?id={name}")


def promoted(console: Visitor, shown: Shown) -> Shown:
    return console.submit(shown, "/console/candidate/promote", confirm="yes")


def test_a_change_is_tried_reviewed_and_promoted(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    other = {
        "name": "audit", "agent_role": "auditor", "allowed_sources": ["handbook"],
        "denied_sources": [], "max_sensitivity": "low",
    }  # fmt: skip
    tenant.admin("POST", "/v1/policies", other)
    assert "No candidate" in console.get("/console/policies/candidates").text
    shown = created(console, "wider", WIDER)
    assert shown.heading == "Candidate wider"
    assert "No decision yet" in shown.text
    event = tenant.evaluate(source_id="payroll")
    shown = console.get("/console/policies/candidate?id=wider")
    figures = [each.text for each in shown.main.find_all("div", class_="figure")]
    assert figures == [
        "1 Decisions since",
        "0 Decided the same",
        "0 Newly denied",
        "1 Newly allowed",
    ]
    example = shown.main.find("a", href=f"/console/decision?id={event['event_id']}")
    assert console.get(example.attributes["href"]).status == 200
    shown = review(console, "wider")
    assert "support may now read payroll at low, medium, high" in shown.text
    assert "It denies nothing that is allowed now" in shown.text
    # The policy that the text does not name stays as it is.
    assert "Changed support-reads" in shown.text
    assert "Removed" not in shown.text
    shown = promoted(console, shown)
    assert "in force now" in shown.text
    assert tenant.evaluate(source_id="payroll")["decision"] == "ALLOW"
    assert {each["name"] for each in tenant.admin("GET", "/v1/policies")} == {
        "audit",
        "support-reads",
    }


def test_a_candidate_that_a_guardrail_refuses_is_promoted_once_corrected(
    tenant: ControlApi,
) -> None:
    tenant.admin("POST", "/v1/guardrails", NEVER)
    console = Visitor(tenant).sign_in(tenant.admin_key)
    policy_id = tenant.admin("GET", "/v1/policies")[0]["policy_id"]
    edit = console.get(f"/console/policy/edit?id={policy_id}")
    refused = console.submit(edit, "/console/policy/review", text=ONE)
    assert "widens access" in refused.text
    assert "refused by a guardrail" in refused.text
    assert "payroll-stays-closed" in refused.text
    assert not refused.main.find_all("form", action="/console/policy/save")
    mended = console.submit(refused, "/console/policy/review", text=ONE.replace("payroll", "press"))
    assert "guardrails hold" in mended.text
    assert "press" in mended.main.find("section", aria_labelledby="allowed").text
    assert mended.main.find_all("form", action="/console/policy/save")
    form = console.submit(mended, "/console/candidate/create")
    console.submit(form, "/console/candidate/create", name="wider")
    assert tenant.evaluate(source_id="press")["decision"] == "DENY"
    tried = console.get("/console/policies/candidate?id=wider")
    figures = [each.text for each in tried.main.find_all("div", class_="figure")]
    assert "1 Newly allowed" in figures
    assert "in force now" in promoted(console, review(console, "wider")).text
    assert tenant.evaluate(source_id="press")["decision"] == "ALLOW"


def test_a_guardrail_is_named_and_keeps_a_candidate_from_being_promoted(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    created(console, "wider", WIDER)
    ready = review(console, "wider")
    tenant.admin("POST", "/v1/guardrails", NEVER)
    refused = promoted(console, ready)
    assert refused.status == 409
    assert "The guardrail payroll-stays-closed refuses the promotion" in refused.text
    shown = review(console, "wider")
    assert "It breaks the guardrail payroll-stays-closed" in shown.text
    assert not shown.main.find_all("form")
    assert tenant.evaluate(source_id="payroll")["decision"] == "DENY"
    again = created(console, "wider", MENDED)
    assert again.status == 409
    assert again.main.find("textarea", name="policies").text == " ".join(MENDED.split())
    created(console, "wider", MENDED, replace="yes")
    assert "in force now" in promoted(console, review(console, "wider")).text
    assert tenant.evaluate(source_id="press")["decision"] == "ALLOW"


def test_only_the_reviewed_text_is_promoted(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    created(console, "next", MENDED)
    ready = review(console, "next")
    (policy,) = tenant.admin("GET", "/v1/policies")
    body = {"name": "support-reads", "agent_role": "support", "denied_sources": ["contracts"]}
    body |= {"allowed_sources": ["handbook"], "max_sensitivity": "low"}
    tenant.admin("PUT", f"/v1/policies/{policy['policy_id']}", body)
    refused = promoted(console, ready)
    assert refused.status == 412
    assert "changed since the review" in refused.text
    assert "Policies in force have changed since the candidate was created" in refused.text
    assert "in force now" in promoted(console, refused).text
    # Without the check box nothing happens.
    created(console, "other", WIDER)
    refused = console.submit(review(console, "other"), "/console/candidate/promote")
    assert refused.status == 422
    assert "confirm" in refused.text


def test_a_whole_set_removes_the_policies_that_it_lacks(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    created(console, "empty", json.dumps({"policies": []}), holds="all")
    assert "Removed support-reads" in review(console, "empty").text
    created(console, "less", "policies: []", without="support-reads")
    assert "Removed support-reads" in review(console, "less").text


def test_a_candidate_is_discarded(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    shown = created(console, "next", MENDED)
    assert console.submit(shown, "/console/candidate/discard").status == 422
    shown = console.submit(shown, "/console/candidate/discard", confirm="yes")
    assert "The candidate is gone" in shown.text
    assert console.get("/console/policies/candidate?id=next").status == 404


def test_faults_of_a_candidate_are_shown_at_their_line(console: Visitor) -> None:
    shown = created(console, "next", MENDED.replace("agent_role", "agent_rol"))
    assert shown.status == 422
    assert "line 3: agent_rol: unknown key; did you mean `agent_role`?" in shown.text
    shown = created(console, "Next Quarter", MENDED)
    assert shown.status == 422
    assert "name" in shown.text
    assert created(console, "next", "{").status == 422


def test_a_text_may_be_one_policy_or_a_list_of_policies(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    one = "name: a\nagent_role: b\nallowed_sources: []\ndenied_sources: []\nmax_sensitivity: low\n"
    assert "Added a" in _added(console, "one", one)
    assert "Added a" in _added(console, "list", "- " + one.replace("\n", "\n  "))
    shown = created(console, "broken", one.replace("low", "lower"))
    assert "line 5: max_sensitivity" in shown.text
    assert len(tenant.admin("GET", "/v1/policies/candidates")) == 2


def _added(console: Visitor, name: str, text: str) -> str:
    created(console, name, text)
    return review(console, name).text


def test_the_form_shows_the_text_sent_by_another_page(console: Visitor) -> None:
    token = console.get(FORM).page.find("input", name="csrf").attributes["value"]
    shown = console.post("/console/candidate/create", {"csrf": token, "policies": MENDED})
    assert shown.status == 200
    assert shown.heading == "New candidate"
    assert shown.main.find("textarea", name="policies").text == " ".join(MENDED.split())


def test_a_reader_sees_candidates_and_cannot_change_them(
    api: ControlApi, console: Visitor, reader: Visitor
) -> None:
    created(console, "next", MENDED)
    assert "New candidate" not in reader.get("/console/policies/candidates").text
    for path in ("candidate", "candidate/review"):
        shown = reader.get(f"/console/policies/{path}?id=next")
        assert shown.status == 200
        assert not shown.main.find_all("form")
    assert reader.get(FORM).status == 403
    assert {each["name"] for each in api.admin("GET", "/v1/policies/candidates")} >= {"next"}
