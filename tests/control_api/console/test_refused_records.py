"""What the service refused or noted of sidecars' records, as people see it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from control_api.audit.change_operations import RejectedRecord, list_rejected_records
from control_api.console.page import Console, Visit
from control_api.console.views.audit.changes import WORDS, show_refused
from control_api.edge.answers import Page
from control_api.edge.router import Bundles
from tests.control_api.audit.test_judged_records import DAY, Sidecar, agent, ids, now
from tests.control_api.console.reader import Element, Visitor
from tests.support.control_api import ControlApi
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
REFUSED = "/console/audit/refused"
TIME, AGENT = "doubtful time", "not its agent"


def rows(visitor: Visitor, path: str) -> list[Element]:
    return visitor.get(path).main.find("tbody").find_all("tr")


def test_every_reason_is_described_in_words() -> None:
    table = (
        (ROOT / "control_api/log/README.md").read_text().partition("| `reason` | The record |")[2]
    )
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", table.partition("\n\n")[0])) == set(WORDS)


async def test_a_refused_record_is_shown_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    record = replace(RejectedRecord(**RejectedRecord.example), record={"pub": {"a": "<b>"}})
    pages = {"list_rejected_records": Page([record], (17,)), "list_keys": Page([])}

    async def call(_: Visit, operation: Any, **fields: Any) -> Any:
        assert operation is not list_rejected_records or fields == {"limit": "50", "cursor": "here"}
        return pages[operation.__name__]

    monkeypatch.setattr(Visit, "call", call)
    query = {"cursor": "here", "colour": "red"}
    shown = await show_refused(Visit(cast(Console, None), Bundles(), "/audit/refused", query))
    (row,) = shown.values["rows"]
    assert (row.record, row.person, row.words) == (record, None, WORDS["foreign_agent"])
    assert '"a": "<b>"' in row.text
    assert shown.values["next"] == (17,)


def test_the_decision_of_a_refused_record_is_readable_beside_the_entry_with_its_id(
    tenant: ControlApi,
) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert "No record was refused" in console.get(REFUSED).text
    ours, thief = agent(tenant, "ours"), Sidecar(tenant, agent(tenant, "thief"))
    key = tenant.new_key("sidecar", name="Branch office", agent_ids=[ours])
    sidecar = Sidecar(tenant, ours, key)
    true = sidecar.decided(source_id="hand<b>book")
    assert thief.sent([thief.decided("DENY", eid=ids([true])[0])]) == []
    assert sidecar.sent([true]) == [(0, "duplicate_id")]
    (row,) = rows(console, REFUSED)
    assert f"ALLOW: {ours} from hand<b>book" in row.text
    # Who delivered it, and why it was refused; and what it was, as text and not as markup.
    for part in (WORDS["duplicate_id"], "duplicate_id", sidecar.name, "Branch office"):
        assert part in row.text
    assert "hand<b>book" in row.find("pre").text
    addresses = [each.attributes["href"] for each in row.find_all("a")]
    (there,) = (each for each in addresses if ids([true])[0] in each)
    assert "DENY" in console.get(there).text


@pytest.mark.deep(
    stands_in="test_the_decision_of_a_refused_record_is_readable_beside_the_entry_with_its_id"
)
def test_refused_records_are_listed_with_who_delivered_them_and_why(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert "No record was refused" in console.get(REFUSED).text
    ours = agent(tenant, "ours")
    key = tenant.new_key("sidecar", name="Branch office", agent_ids=[ours])
    sidecar = Sidecar(tenant, ours, key)
    forged = sidecar.decided(agent_id="agt_<b>theirs</b>")
    assert sidecar.sent([forged, sidecar.decided(eid="not-a-uuid")]) == [
        (0, "foreign_agent"),
        (1, "event_id"),
    ]
    later, first = rows(console, REFUSED)
    assert WORDS["event_id"] in later.text
    for part in (WORDS["foreign_agent"], "foreign_agent", sidecar.name, "Branch office"):
        assert part in first.text
    # The record as it was delivered, as text and not as markup.
    assert "agt_<b>theirs</b>" in first.find("pre").text


def test_marks_of_a_record_are_described_in_words(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    ours, theirs = agent(tenant, "ours"), agent(tenant, "theirs")
    sidecar = Sidecar(tenant, ours)
    session = {"session_id": "s1", "agent_role": "support", "agent_id": ours, "user_id": "ann"}
    tenant.admin("POST", "/v1/sidecars/sessions/claim", session)
    records = [
        sidecar.decided("DENY", agent_id=theirs, session_id="s1"),
        sidecar.decided("DENY", at=now() - 31 * DAY, session_id="s1"),
        sidecar.decided("DENY", session_id="s1"),
    ]
    assert sidecar.sent(records) == []
    foreign, doubtful, plain = ids(records)
    marked = {foreign: [AGENT], doubtful: [TIME], plain: []}
    for path in ("/console/decisions", "/console/session?id=s1"):
        listed = {
            each.find("a").attributes["href"].partition("id=")[2]: each.text
            for each in rows(console, path)
        }
        for event_id, marks in marked.items():
            assert [mark for mark in (TIME, AGENT) if mark in listed[event_id]] == marks, path
    for event_id, marks in marked.items():
        shown = console.get(f"/console/decision?id={event_id}").text
        assert ("Its time is doubtful" in shown) == (TIME in marks)
        assert ("names an agent that the sidecar’s key does not act" in shown) == (AGENT in marks)


def test_a_rule_fires_at_doubtful_times_and_the_page_names_it(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    console.submit(
        console.get("/console/alerts/new"),
        "/console/alerts/create",
        name="clocks",
        rule_type="doubtful_time",
        threshold="2",
        window_minutes="60",
        cooldown_minutes="60",
    )
    sidecar = Sidecar(tenant, agent(tenant, "late"))
    times = [now() - 31 * DAY, now() + 120_000_000, now() - DAY]
    assert sidecar.sent([sidecar.decided(at=at) for at in times]) == []
    until("it fires", lambda: tenant.admin("GET", "/v1/alerts/fired"))
    (fired,) = tenant.admin("GET", "/v1/alerts/fired")
    assert (fired["rule_type"], fired["detail"]["measured"]) == ("doubtful_time", 2)
    assert "records with a doubtful time" in console.get("/console/alerts/rules").text
