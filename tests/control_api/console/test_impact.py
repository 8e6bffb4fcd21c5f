"""Impact runs in the console: started from a text, followed, shown, cancelled."""

from __future__ import annotations

import json

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi
from tests.support.waiting import until

PATH = "/console/policies/impact"
STRICT = """\
name: support-reads
agent_role: support
allowed_sources: [handbook]
denied_sources: [contracts]
max_sensitivity: high
"""


def started(console: Visitor, policies: str, **fields: str) -> Shown:
    return console.submit(console.get(PATH), "/console/impact/start", policies=policies, **fields)


def ended(console: Visitor, impact_id: str) -> Shown:
    address = f"{PATH}/progress?id={impact_id}"
    until("the run's end", lambda: not json.loads(console.get(address).raw)["running"])
    return console.get(f"{PATH}?id={impact_id}")


@pytest.mark.deep(
    stands_in="tests/control_api/policy_tools/test_impact.py::test_what_changes_is_listed"
)
def test_a_run_shows_which_decisions_would_change(fresh: ControlApi) -> None:
    console = Visitor(fresh).sign_in(fresh.admin_key)
    event = fresh.evaluate(source_id="contracts")
    fresh.evaluate(source_id="handbook")
    shown = started(console, STRICT)
    assert shown.status == 200
    assert "The run has begun" in shown.text
    impact_id = shown.address.split("id=")[1].partition("&")[0]
    shown = ended(console, impact_id)
    figures = [each.text for each in shown.main.find_all("div", class_="figure")]
    assert figures == ["2 Decisions read", "1 Unchanged", "1 Newly denied", "0 Newly allowed"]
    row = shown.main.find("tbody").find("tr").text
    assert row.startswith("newly denied support contracts")
    assert shown.main.find_all("a", href=f"/console/decision?id={event['event_id']}")
    assert not shown.page.find_all("progress")
    # A colleague who may only read sees the same.
    reader = Visitor(fresh).sign_in(fresh.new_key("read"))
    seen = reader.get(f"{PATH}?id={impact_id}")
    assert "1 Newly denied" in seen.text
    assert not seen.main.find_all("form")


def test_a_text_with_faults_starts_nothing(api: ControlApi, console: Visitor) -> None:
    shown = started(console, STRICT.replace("high", "highest"), since="day")
    assert shown.status == 422
    assert "line 5: max_sensitivity" in shown.text
    assert "highest" in shown.main.find("textarea", name="policies").text
    assert shown.main.find("option", value="day").attributes.get("selected") is not None
    assert Visitor(api).sign_in(api.new_key("read")).get(PATH).status == 200


def test_a_run_is_cancelled(console: Visitor) -> None:
    shown = started(console, STRICT, since="all", holds="all")
    impact_id = shown.address.split("id=")[1].partition("&")[0]
    token = shown.page.find("input", name="csrf").attributes["value"]
    shown = console.post("/console/impact/cancel", {"csrf": token, "id": impact_id})
    assert "The run was cancelled" in shown.text
    assert "Another run" in ended(console, impact_id).text


def test_an_unknown_run_is_not_found(console: Visitor) -> None:
    assert console.get(f"{PATH}?id=imp_none").status == 404
    assert console.get(f"{PATH}/progress?id=imp_none").status == 404
