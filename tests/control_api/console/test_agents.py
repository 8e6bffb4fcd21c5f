"""The agents' pages: the queue, search, one agent, its history, and each step with a reason."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi

WHY = "asked for in ticket 7"


def page_of(visitor: Visitor, agent_id: str) -> Shown:
    return visitor.get(f"/console/agent?id={quote(agent_id, safe='')}")


def decide(visitor: Visitor, agent_id: str, status: str, reason: str = WHY) -> Shown:
    """Fill in the form for this status."""
    shown = page_of(visitor, agent_id)
    for form in shown.page.find_all("form", action="/console/agent/status"):
        held = {
            each.attributes["name"]: each.attributes["value"] for each in form.find_all("input")
        }
        if held["status"] == status:
            return visitor.post("/console/agent/status", {**held, "reason": reason})
    raise LookupError(f"no form for {status}")


def lists_of(shown: Shown) -> dict[str, list[str]]:
    """The three lists of sources, by their headings."""
    cards = shown.main.find("section", aria_labelledby="sources").find_all("div", class_="card")
    return {card.find("h3").text: [each.text for each in card.find_all("li")] for card in cards}


def test_an_unknown_agent_is_listed_until_it_is_registered_and_reads_once_approved(
    tenant: ControlApi,
) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    for _ in range(2):
        tenant.evaluate(agent_id="agt_asks", agent_role="support")
    unknown = console.get("/console/agents").main.find("section", aria_labelledby="unknown")
    [row] = unknown.find("tbody").find_all("tr")
    assert "agt_asks unknown asked 2 times support handbook" in row.text
    form = console.get(row.find("a", class_="button").attributes["href"])
    assert form.main.find("input", id="f-agent_id").attributes["value"] == "agt_asks"
    assert form.main.find("input", id="f-agent_role").attributes["value"] == "support"
    console.submit(form, "/console/agents/register", owner="returns")
    listed = console.get("/console/agents").main
    assert not listed.find_all("section", aria_labelledby="unknown")
    assert "agt_asks" in listed.find("section", aria_labelledby="queue").text
    looked = decide(console, "agt_asks", "approved")
    assert "handbook" in looked.main.find("section", aria_labelledby="may-read").text
    assert lists_of(looked)["Tried, and denied"] == ["handbook 2"]
    assert tenant.evaluate(agent_id="agt_asks")["decision"] == "ALLOW"
    decide(console, "agt_asks", "suspended", "reads too much")
    assert tenant.evaluate(agent_id="agt_asks")["decision"] == "DENY"
    history = console.get("/console/agent/history?id=agt_asks")
    reasons = [row.find_all("td")[-1].text for row in history.main.find("tbody").find_all("tr")]
    assert reasons == ["reads too much", WHY, WHY, "–"]


@pytest.mark.deep(
    stands_in="test_an_unknown_agent_is_listed_until_it_is_registered_and_reads_once_approved"
)
def test_an_unknown_agent_is_registered_approved_and_suspended(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    """The issue's journey: it appears, is looked at, approved, reads, is suspended, is denied."""
    assert not console.get("/console/agents").main.find_all("section", aria_labelledby="unknown")
    for _ in range(2):
        asked = tenant.evaluate(agent_id="agt_new", agent_role="support")
        assert asked["policy_name"] == "agent_not_registered"
    unknown = console.get("/console/agents").main.find("section", aria_labelledby="unknown")
    [row] = unknown.find("tbody").find_all("tr")
    assert "agt_new unknown asked 2 times support handbook" in row.text
    form = console.get(row.find("a", class_="button").attributes["href"])
    assert form.main.find("input", id="f-agent_id").attributes["value"] == "agt_new"
    shown = console.submit(form, "/console/agents/register", owner="returns")
    assert "Registered, as a draft" in shown.text
    assert not console.get("/console/agents").main.find_all("section", aria_labelledby="unknown")
    assert tenant.evaluate(agent_id="agt_new")["decision"] == "DENY"
    queue = console.get("/console/agents").main.find("section", aria_labelledby="queue")
    assert "agt_new" in queue.text
    assert "returns" in queue.text

    looked = page_of(console, "agt_new")
    assert "What it would be able to read, once approved" in looked.text
    assert "handbook" in looked.main.find("section", aria_labelledby="may-read").text
    assert lists_of(looked)["Tried, and denied"] == ["handbook 3"]
    shown = decide(console, "agt_new", "approved")
    assert "Approved." in shown.text
    assert tenant.evaluate(agent_id="agt_new")["decision"] == "ALLOW"
    assert lists_of(page_of(console, "agt_new"))["Used"] == ["handbook 1"]

    shown = decide(console, "agt_new", "suspended", "reads too much")
    assert "Suspended." in shown.text
    assert tenant.evaluate(agent_id="agt_new")["decision"] == "DENY"
    history = console.get("/console/agent/history?id=agt_new")
    reasons = [row.find_all("td")[-1].text for row in history.main.find("tbody").find_all("tr")]
    assert reasons == ["reads too much", WHY, WHY, "–"]
    assert tenant.verified()["valid"]


def test_a_step_needs_a_reason_and_keeps_what_was_typed(api: ControlApi, console: Visitor) -> None:
    api.admin("POST", "/v1/agents", {"agent_id": "agt_why", "agent_role": "support"})
    shown = decide(console, "agt_why", "approved", "  ")
    assert (shown.status, "say why" in shown.text) == (422, True)
    assert api.admin("GET", "/v1/agents/agt_why")["status"] == "draft"
    shown = decide(console, "agt_why", "approved", "x" * 1025)
    assert shown.status == 422
    assert "x" * 1025 in shown.main.find("textarea", id="reason-approved").text
    api.admin("POST", "/v1/agents", {"agent_id": "agt_go", "agent_role": "support"})
    for step, decision in (("approved", "ALLOW"), ("suspended", "DENY")):
        decide(console, "agt_go", step)
        assert api.evaluate(agent_id="agt_go")["decision"] == decision
    decide(console, "agt_why", "pending_approval")
    decide(console, "agt_why", "draft")
    decide(console, "agt_why", "deprecated")
    assert api.admin("GET", "/v1/agents/agt_why")["status"] == "deprecated"
    assert not page_of(console, "agt_why").page.find_all("form", action="/console/agent/status")


def test_a_closed_step_is_refused_beside_the_page(api: ControlApi, console: Visitor) -> None:
    api.approved("agt_closed")
    csrf = console.get("/console/agents").page.find("input", name="csrf").attributes["value"]
    fields = {"csrf": csrf, "id": "agt_closed", "status": "draft", "reason": WHY}
    shown = console.post("/console/agent/status", fields)
    assert shown.status == 409
    assert "not `draft`" in shown.main.find("div", role="alert").text


def test_agents_are_found_by_text_status_and_role(api: ControlApi, console: Visitor) -> None:
    for agent_id, name in (("agt_f1", "Invoices"), ("agt_f2", "Letters")):
        body = {"agent_id": agent_id, "agent_role": "finder", "display_name": name}
        api.admin("POST", "/v1/agents", body)
    shown = console.get("/console/agents?text=invoi&status=draft&agent_role=finder")
    assert [each.text for each in shown.main.find_all("a") if "id=agt" in str(each)] == ["agt_f1"]
    assert "Waiting for a decision" not in shown.text
    assert "No agent matches" in console.get("/console/agents?text=zzz").text
    assert console.get("/console/agents?status=wrong").status == 422


def test_a_draft_of_an_unknown_workload_shows_its_origin(api: ControlApi, console: Visitor) -> None:
    workload = "https://cluster.example:system:serviceaccount:lending:loans"
    body = {"agent_id": "lending.loans", "agent_role": "lending.loans", "workload": workload}
    api.admin("POST", "/v1/agents", body)
    queue = console.get("/console/agents").main.find("section", aria_labelledby="queue")
    assert f"a pod enrolled: {workload}" in queue.text
    assert "No policy of its role allows it" in page_of(console, "lending.loans").text


def test_an_entry_is_edited_with_a_reason_and_emptied_fields_are_cleared(
    api: ControlApi, console: Visitor
) -> None:
    body = {"agent_id": "agt_edit", "agent_role": "support", "owner": "Ann", "framework": "x"}
    api.admin("POST", "/v1/agents", body)
    form = console.get("/console/agent/edit?id=agt_edit")
    fields = {"owner": "", "agent_role": "sales", "permitted_roles": "sales\nsupport\n"}
    shown = console.submit(form, "/console/agent/save", **fields)
    assert (shown.status, "say why" in shown.text) == (422, True)
    typed = shown.main.find("textarea", id="f-permitted_roles")
    assert typed.text.split() == ["sales", "support"]
    shown = console.submit(shown, "/console/agent/save", reason=WHY)
    assert "Saved." in shown.text
    agent = api.admin("GET", "/v1/agents/agt_edit")
    assert (agent["owner"], agent["framework"]) == (None, "x")
    assert agent["permitted_roles"] == ["sales", "support"]


def test_the_three_lists_compare_use_with_the_policies(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    policy = {
        "name": "wide", "agent_role": "compared", "allowed_sources": ["a", "b*", "never"],
        "denied_sources": ["bad"], "max_sensitivity": "high",
    }  # fmt: skip
    made = tenant.admin("POST", "/v1/policies", policy)
    tenant.approved("agt_c", "compared")
    for source in ("a", "a", "b1", "bad", "other"):
        tenant.evaluate(agent_id="agt_c", agent_role="compared", source_id=source)
    found = lists_of(page_of(console, "agt_c"))
    assert found["Used"] == ["a 2", "b1 1"]
    assert found["Allowed, never used"] == ["never"]
    assert found["Tried, and denied"] == ["bad 1", "other 1"]
    narrower = {**policy, "allowed_sources": ["a"]}
    tenant.admin("PUT", f"/v1/policies/{made['policy_id']}", narrower)
    assert lists_of(page_of(console, "agt_c"))["Used"] == ["a 2", "b1 1 no longer allowed"]


def test_a_reader_sees_agents_and_cannot_change_them(api: ControlApi, reader: Visitor) -> None:
    api.admin("POST", "/v1/agents", {"agent_id": "agt_read", "agent_role": "support"})
    shown = page_of(reader, "agt_read")
    assert shown.status == 200
    assert not shown.main.find_all("form")
    assert reader.get("/console/agents/new").status == 403
    assert reader.get("/console/agent/edit?id=agt_read").status == 403


@pytest.mark.parametrize("path", ["/console/agent", "/console/agent/edit"])
def test_an_unknown_agent_is_not_found(console: Visitor, path: str) -> None:
    assert console.get(f"{path}?id=unknown").status == 404
    assert console.get(path).status == 422
