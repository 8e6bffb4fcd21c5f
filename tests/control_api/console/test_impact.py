"""Impact runs in the console: started from a text, followed, shown, cancelled."""

from __future__ import annotations

import json
import sqlite3

import pytest

from control_api.console.views.policies.policy_text import read
from control_api.policy.impact_counts import ImpactCounts
from policies.definitions.model import Policy
from policies.trail.recompute.replay import Replay
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


def policy_of(text: str) -> Policy:
    return Policy.from_wire({**(read(text).body or {}), "policy_id": "", "version": 0})


@pytest.mark.deep(stands_in="test_an_ended_run_shows_its_figures_and_groups")
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


def test_an_ended_run_shows_its_figures_and_groups(api: ControlApi, console: Visitor) -> None:
    shown = started(console, STRICT)
    impact_id = shown.address.split("id=")[1].partition("&")[0]
    api.evaluate()
    changed = [api.evaluate(source_id="contracts")["event_id"] for _ in range(2)]
    changed.append(api.evaluate(task_type="marketing")["event_id"])
    counts, replay = ImpactCounts(), Replay([policy_of(STRICT.replace("reads", "strict"))])
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        # As the run's process counts them.
        decisions = "SELECT entry FROM log_entries WHERE kind = 'decision' ORDER BY seq DESC"
        for (raw,) in database.execute(f"{decisions} LIMIT 4"):
            entry = json.loads(raw)
            counts.add(replay.decide(entry), entry)
        change = "UPDATE impact_runs SET state = 'done', counts = ? WHERE impact_id = ?"
        database.execute(change, (json.dumps(counts.to_wire()).encode(), impact_id))
    shown = console.get(f"{PATH}?id={impact_id}")
    figures = [each.text for each in shown.main.find_all("div", class_="figure")]
    assert figures == ["4 Decisions read", "1 Unchanged", "2 Newly denied", "1 Newly allowed"]
    rows = [each.text for each in shown.main.find("tbody").find_all("tr")]
    by = "support-reads , then support-strict"
    assert rows[0].startswith(f"newly denied support contracts {by} 2")
    assert rows[1].startswith(f"newly allowed support handbook {by} 1")
    for event_id in changed:
        assert shown.main.find_all("a", href=f"/console/decision?id={event_id}")
    assert not shown.page.find_all("progress")
    reader = Visitor(api).sign_in(api.new_key("read")).get(f"{PATH}?id={impact_id}")
    assert "2 Newly denied" in reader.text
    assert not reader.main.find_all("form")


def test_an_unknown_run_is_not_found(console: Visitor) -> None:
    assert console.get(f"{PATH}?id=imp_none").status == 404
    assert console.get(f"{PATH}/progress?id=imp_none").status == 404
