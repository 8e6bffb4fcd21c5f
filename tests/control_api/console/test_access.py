"""The access pages: the table leads to why, and a question gets its exact answer in words. What the
cells say is tested at the API (`tests/control_api/policy/test_access_matrix.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from control_api.console.words import covers, in_words, item_in_words
from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi

POLICY = {
    "name": "clerks-read", "agent_role": "clerk", "allowed_sources": ["files", "rest://x/*"],
    "denied_sources": ["rest://x/secret"], "max_sensitivity": "medium", "denied_tasks": ["export"],
}  # fmt: skip


def test_a_cell_leads_to_the_clauses_and_the_agents(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    tenant.admin("POST", "/v1/policies", POLICY)
    tenant.approved("agt_clerk", "clerk")
    shown = console.get("/console/access?agent_role=clerk")
    heads = [each.text for each in shown.main.find("thead").find_all("th")]
    assert heads == ["Role", "files", "rest://x/*", "rest://x/secret"]
    [row] = shown.main.find("tbody").find_all("tr")
    cells = [each.text for each in row.find_all("td")]
    assert cells == [
        "medium * depends on the tasks",
        "medium * depends on the tasks, the sources",
        "nothing",
    ]
    why = console.get(row.find_all("td")[1].find("a").attributes["href"])
    assert why.heading == "clerk and rest://x/*"
    assert "agt_clerk" in why.main.find("tbody").text
    assert "rest://x/* except rest://x/secret" in why.main.find("tbody").text
    clauses = why.main.find("section", class_="card").text
    assert "allows rest://x/* up to medium" in clauses
    assert "denies rest://x/secret , whatever another policy allows" in clauses
    assert "denies the tasks export" in clauses
    asked = "/console/access/why?agent_role=clerk&agent_id=agt_clerk&source_id=files"
    allowed = console.get(f"{asked}&task=review&level=medium")
    assert "agt_clerk" in allowed.main.find("tbody").text
    for more in ("&task=export", "&level=high"):
        assert "No request is allowed" in console.get(asked + more).text
    assert "files" not in clauses
    refused = console.get("/console/access/why?agent_id=agt_clerk")
    assert (refused.status, "source_id" in refused.text) == (422, True)
    assert console.get("/console/access?cursor=wrong").status == 422
    assert "No role matches" in console.get("/console/access?agent_role=none").text


@pytest.mark.deep(stands_in="test_a_cell_leads_to_the_clauses_and_the_agents")
def test_a_question_about_an_agent_and_a_task_is_answered(
    api: ControlApi, console: Visitor
) -> None:
    api.admin("POST", "/v1/policies", POLICY)
    api.approved("agt_can", "clerk")
    asked = "/console/access/why?agent_role=clerk&agent_id=agt_can&source_id=files"
    assert "agt_can" in console.get(f"{asked}&task=review&level=medium").main.find("tbody").text
    assert "No request is allowed" in console.get(f"{asked}&task=export").text
    assert "No request is allowed" in console.get(f"{asked}&level=high").text
    refused = console.get("/console/access/why?agent_id=agt_can")
    assert (refused.status, "source_id" in refused.text) == (422, True)
    assert console.get("/console/access?cursor=wrong").status == 422
    assert "No role matches" in console.get("/console/access?agent_role=none").text


@pytest.mark.parametrize(
    ("item", "words", "inside", "outside"),
    [
        ("a*", "a*", "ab", "b"),
        ("a", "a", "a", "ab"),
        ({"name": "absent"}, "absent", "absent", "a"),
        ({"any": ["a*", "b"], "except": ["ax*"]}, "a*, b except ax*", "b", "axe"),
        ({"any": "*", "except": [{"name": "*"}]}, "* except *", "a", "*"),
    ],
)
def test_items_are_described_in_words_and_match_values(
    item: Any, words: str, inside: str, outside: str
) -> None:
    assert item_in_words(item) == words
    assert covers([item], inside)
    assert not covers([item], outside)
    assert not covers(["absent"], "absent")


def test_a_row_names_the_agents_the_question_and_the_policies() -> None:
    row = {
        "agent_role": "r", "sources": ["*"], "levels": ["low", "medium"],
        "agents": ["absent", "*"], "tasks": ["absent", {"any": "*", "except": ["t"]}],
        "agent_ids": [f"agt_{number:02}" for number in range(25)], "policies": ["p"],
    }  # fmt: skip
    said = in_words(row)
    assert (said.sources, said.level) == ("every source", "medium")
    assert said.agents == "every agent, and calls without one"
    assert said.tasks == "every task except t, and calls without one"
    assert (len(said.registered), said.more_registered) == (20, 5)
