"""One decision's page: its checks, what is around it, and what a browser is given to prove it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi
from tests.support.waiting import until


def test_a_denial_shows_its_checks_and_what_would_have_allowed_it(
    api: ControlApi, console: Visitor
) -> None:
    denied = api.evaluate(source_id="payroll")
    shown = console.get(f"/console/decision?id={denied['event_id']}")
    assert shown.status == 200
    assert shown.heading == "DENY support reads payroll"
    rows = shown.main.find("section", aria_labelledby="checks").find("tbody").find_all("tr")
    assert len(rows) == 10
    outcomes = [row.find("span", class_="badge").text for row in rows]
    assert outcomes[8] == "failed"
    assert outcomes[9] == "not reached"
    # The list that the ninth check compared with, for who writes policies, and not for the agent.
    assert "allowed sources: contracts, handbook, rest://files/*" in rows[8].text
    assert "denied sources: payroll" in rows[8].text
    fields = {"agent_role": "support", "user_id": "ann", "source_id": "payroll"}
    asked = {**fields, "sensitivity_level": "low"}
    told = api.call("POST", "/v1/context/evaluate?explain=true", asked, key=api.new_key("evaluate"))
    assert b"nearest_miss" in told.raw
    assert b'"denied_sources":' not in told.raw
    assert "What would have allowed it" in shown.text


def test_the_checks_are_those_of_the_policies_that_decided(tenant: ControlApi) -> None:
    allowed = tenant.evaluate(user_id="ann")
    body = {
        "name": "support-forbids",
        "agent_role": "support",
        "allowed_sources": ["*"],
        "denied_sources": ["handbook"],
        "max_sensitivity": "low",
    }
    page = Visitor(tenant).sign_in(tenant.admin_key)
    where = f"/console/decision?id={allowed['event_id']}"
    today = page.get(where).main.find("section", aria_labelledby="today")
    assert today.find("span", class_="badge").text == "ALLOW"
    policy_id = tenant.admin("GET", "/v1/policies")[0]["policy_id"]
    assert f"/console/policy/history?id={policy_id}" in today.find("a").attributes["href"]
    tenant.admin("POST", "/v1/policies", body)
    found = tenant.admin("GET", f"/v1/audit/events/{allowed['event_id']}")
    assert found["event"]["decision"] == "ALLOW"
    assert found["unexplained"] is None
    assert {each["outcome"] for each in found["explain"]["checks"]} <= {"passed", "skipped"}
    today = page.get(where).main.find("section", aria_labelledby="today")
    assert today.find("span", class_="badge").text == "DENY"
    assert len(tenant.events()) == 1  # a simulation is not recorded
    tenant.admin("POST", "/v1/audit/redact", {"user_id": "ann", "reason": "asked for it"})
    today = page.get(where).main.find("section", aria_labelledby="today")
    assert "the user was erased" in today.text


def test_actions_after_a_decision_are_described_in_words(tenant: ControlApi) -> None:
    event_id = tenant.evaluate()["event_id"]
    console = Visitor(tenant).sign_in(tenant.admin_key)
    where = f"/console/decision?id={event_id}"
    assert "Nothing was recorded after it" in console.get(where).text
    digest = "70fc7429d0bc707847d513b094d759f471113564cff6356b71003442d0dcac7f"
    released = {"status": 200, "bytes": 467, "sha256": digest, "duration_ms": 7, "withheld": 3}
    sent = {"channel": "email", "to": {"team": ["a", "b"]}}
    for kind, detail, outcome in (
        ("retrieval", released, "completed"),
        ("summary_sent", sent, "failed"),
    ):
        action = {"event_id": event_id, "action_type": kind, "detail": detail, "outcome": outcome}
        tenant.call("POST", "/v1/audit/lineage", action)
    rows = console.get(where).main.find("section", aria_labelledby="released").find("tbody")
    retrieval, summary = ([cell.text for cell in row.find_all("td")] for row in rows.find_all("tr"))
    assert retrieval[1] == "completed"
    assert f"SHA-256 of the response: {digest} bytes: 467 items withheld: 3" in retrieval[2]
    assert summary[1:] == ["failed", 'channel: email to: {"team":["a","b"]}']


@pytest.mark.deep(stands_in="test_the_checks_are_those_of_the_policies_that_decided")
def test_a_decision_is_shown_beside_the_one_of_today_s_policies(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    allowed = tenant.evaluate(user_id="ann")
    where = f"/console/decision?id={allowed['event_id']}"
    shown = console.get(where).main.find("section", aria_labelledby="today")
    assert shown.find("span", class_="badge").text == "ALLOW"
    policy_id = tenant.admin("GET", "/v1/policies")[0]["policy_id"]
    assert f"/console/policy/history?id={policy_id}" in shown.find("a").attributes["href"]
    assert "made by version 1" in shown.text
    tenant.admin("DELETE", f"/v1/policies/{policy_id}")
    shown = console.get(where).main.find("section", aria_labelledby="today")
    assert shown.find("span", class_="badge").text == "DENY"
    assert not shown.find_all("a")
    assert len(tenant.events()) == 1  # a simulation is not recorded
    tenant.admin("POST", "/v1/audit/redact", {"user_id": "ann", "reason": "asked for it"})
    shown = console.get(where).main.find("section", aria_labelledby="today")
    assert "the user was erased" in shown.text


def test_a_decision_in_a_frozen_tenant_is_explained_without_checks(fresh: ControlApi) -> None:
    fresh.admin("POST", "/v1/freeze", {"reason": "a leak"})
    denied = fresh.evaluate()
    found = fresh.admin("GET", f"/v1/audit/events/{denied['event_id']}")
    assert found["event"]["policy_name"] == "tenant_frozen"
    assert {each["outcome"] for each in found["explain"]["checks"]} == {"not_reached"}


def test_the_neighbours_in_a_session_are_linked(api: ControlApi, console: Visitor) -> None:
    ids = [api.evaluate(session_id="s-neighbours")["event_id"] for _ in range(3)]
    shown = console.get(f"/console/decision?id={ids[1]}")
    links = [each.attributes["href"] for each in shown.main.find_all("a")]
    assert f"/console/decision?id={ids[0]}" in links
    assert f"/console/decision?id={ids[2]}" in links


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_audit_evidence.py::test_evidence_of_a_session_is_verified_offline"
)
def test_the_browser_gets_what_it_needs_to_verify_a_decision(
    api: ControlApi, console: Visitor
) -> None:
    event_id = api.evaluate()["event_id"]
    address = f"/console/decision/proof?id={event_id}"
    until("a checkpoint", lambda: console.get(address, Accept="application/json").status == 200)
    given = json.loads(console.get(address, Accept="application/json").raw)
    assert given["proof"].startswith("c2sp.org/tlog-proof@v1\n")
    assert given["openings"]["user_id"][1] == "ann"
    assert given["log_key"] == api.admin("GET", "/v1/audit/log-keys")["log_key"]
    file = console.get(f"/console/decision/proof.txt?id={event_id}")
    assert file.raw.decode() == given["proof"]


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_audit_evidence.py::test_evidence_of_a_session_is_verified_offline"
)
def test_the_evidence_is_verified_offline(
    api: ControlApi, console: Visitor, tmp_path: Path
) -> None:
    event_id = api.evaluate(user_id="zoe")["event_id"]
    address = f"/console/decision/evidence.json?id={event_id}"
    until("a checkpoint", lambda: console.get(address).status == 200)
    file = tmp_path / "evidence.json"
    file.write_bytes(console.get(address).raw)
    key = ["--key", api.admin("GET", "/v1/audit/log-keys")["log_key"]]
    command = [sys.executable, "-m", "deploy.commands.verify", str(file), *key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "signed: only who has the log's key" in done.stdout
    file.write_text(file.read_text().replace("zoe", "zoo"))
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 1


def test_a_damaged_entry_is_named(fresh: ControlApi) -> None:
    ids = [fresh.evaluate(session_id="s-damaged")["event_id"] for _ in range(2)]
    console = Visitor(fresh).sign_in(fresh.admin_key)
    for damaged in (b"nothing", b"{}", b'{"pub":7}', b"[]"):
        with sqlite3.connect(fresh.directory / "data" / "sluice.db") as connection:
            connection.execute("UPDATE log_entries SET entry = ? WHERE eid = ?", (damaged, ids[0]))
            found = connection.execute("SELECT seq FROM log_entries WHERE eid = ?", (ids[0],))
            seq = found.fetchone()[0]
        for each in ids:
            # The other decision's page names it as its neighbour in the session.
            shown = console.get(f"/console/decision?id={each}")
            assert shown.status == 409
            assert f"entry {seq}: what is stored" in shown.main.find("div", role="alert").text


def test_an_unknown_decision_is_not_found(console: Visitor) -> None:
    assert console.get("/console/decision?id=nothing").status == 404
    assert console.get("/console/decision").status == 422


@pytest.mark.parametrize("role", ["support", "unknown"])
def test_a_source_that_a_policy_names_by_its_end_is_suggested_to_authors_and_not_to_the_agent(
    role: str, api: ControlApi, console: Visitor
) -> None:
    """A policy of the role itself, or of another if the role has none (`default_deny`)."""
    words = "policy `support-reads` names `handbook`, and this source's whole id is"
    denied = api.evaluate(agent_role=role, source_id="chroma://db/handbook")
    assert (denied["policy_name"] == "default_deny") is (role != "support")
    assert "handbook`," not in json.dumps(denied)
    found = api.admin("GET", f"/v1/audit/events/{denied['event_id']}")
    assert found["suggestion"].startswith(words)
    shown = console.get(f"/console/decision?id={denied['event_id']}")
    assert "write chroma://db/handbook" in shown.text or words in shown.text
    other = api.evaluate(source_id="chroma://db/unknown")
    assert api.admin("GET", f"/v1/audit/events/{other['event_id']}")["suggestion"] is None
