"""The first page: counts, charts with the numbers behind them, causes, and what needs a person."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from markupsafe import Markup

from control_api.console.charts import Series, bar_chart, ceiling, line_chart
from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi, asked
from tests.support.waiting import until


def test_a_first_run_shows_how_to_begin(tenant: ControlApi) -> None:
    shown = Visitor(tenant).sign_in(tenant.admin_key).get("/console")
    assert shown.heading == "Overview"
    assert "No decision yet" in shown.text
    assert "/v1/context/evaluate" in shown.text


def test_the_overview_counts_and_names_causes(api: ControlApi, console: Visitor) -> None:
    for source in ("handbook", "payroll", "payroll"):
        api.evaluate(source_id=source)
    shown = console.get("/console?window=hour")
    figures = [each.text for each in shown.main.find_all("div", class_="figure")]
    assert "3 Decisions" in figures
    assert "2 Denied" in figures
    cause = shown.main.find("section", aria_labelledby="causes").find("a")
    matching = console.get(cause.attributes["href"])
    assert len(matching.main.find("tbody").find_all("tr")) == 2


def test_what_needs_a_person_is_shown_on_top(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert needs(console) == {}
    tenant.admin("POST", "/v1/agents", {"agent_id": "agt-new", "agent_role": "support"})
    tenant.new_key(expires_days=13)
    revision = tenant.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"]
    report(tenant, "one", revision=revision, refusing="no policy set")
    report(tenant, "two", revision=revision - 1, policy_set_age_ms=26_000)
    tenant.admin("POST", "/v1/freeze", {"reason": "a leaked key"})
    found = needs(console)
    assert {text.partition(":")[0]: tone for text, tone in found} == {
        "A freeze is in force, and every evaluation is denied": "bad",
        "Sidecars that deny every request": "bad",
        "Sidecars with older policies": "warn",
        "Sidecars with stale policies": "warn",
        "1 agent waits for a role and approval": "warn",
        "1 key to replace within 14 days": "warn",
    }
    leads = {urlsplit(href).path.removeprefix("/console/") for href in found.values()}
    assert leads == {"alerts/freeze", "fleet", "agents", "keys"}
    tenant.admin("DELETE", "/v1/freeze")
    assert len(needs(console)) == len(found) - 1


def test_all_that_needs_a_person_leads_to_its_page(api: ControlApi, tenant: ControlApi) -> None:
    visitor = Visitor(tenant).sign_in(tenant.admin_key)
    assert needs(visitor) == {}
    tenant.admin("PUT", "/v1/policies/candidates/stricter", {"policies": []})
    tenant.admin(
        "POST", "/v1/context/evaluate/batch", {"items": [asked()] * 100, "semantics": "all"}
    )
    tenant.admin("POST", "/v1/agents", {"agent_id": "agt-new", "agent_role": "support"})
    tenant.new_key(expires_days=13)
    rule = {"name": "any", "rule_type": "denial_spike", "threshold": 1, "window_minutes": 60}
    tenant.admin("POST", "/v1/alerts/rules", rule)
    tenant.admin("POST", "/v1/freeze", {"reason": "a leaked key"})
    tenant.evaluate()
    revision = tenant.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"]
    report(tenant, "one", revision=revision, refusing="no policy set")
    report(tenant, "two", revision=revision - 1, policy_set_age_ms=26_000)
    report(tenant, "three", revision=revision, oldest_unshipped_ms=20_000, spool_depth=3)
    refused_file(api, tenant)
    until("the alert fires", lambda: tenant.admin("GET", "/v1/alerts/fired"))
    tamper(api, tenant)
    found = needs(visitor)
    assert [text.partition(":")[0] for text, tone in found if tone == "bad"] == [
        "A freeze is in force, and every evaluation is denied",
        "The audit trail does not verify",
        "The policy files are refused, the policies stay as they were",
        "Sidecars that deny every request",
        "1 alert fired within a day",
    ]
    assert [text for text, tone in found if tone == "warn"] == [
        "Sidecars with older policies: 1",
        "Sidecars with stale policies: 1",
        "Sidecars that ship records late: 1",
        "1 agent waits for a role and approval",
        "1 key to replace within 14 days",
    ]
    (ready,) = [text for text, tone in found if tone == "info"]
    assert ready == (
        "The candidate “stricter” is ready to be promoted or discarded: of 101 decisions it would "
        "newly deny 100 and newly allow 0"
    )
    leads = {urlsplit(href).path.removeprefix("/console/") for href in found.values()}
    settled = {"audit", "policies", "fleet", "alerts", "agents", "keys"}
    assert leads == {*settled, "alerts/freeze", "policies/candidate"}


def test_settled_matters_no_longer_need_anyone(api: ControlApi, tenant: ControlApi) -> None:
    visitor, file = Visitor(tenant).sign_in(tenant.admin_key), refused_file(api, tenant)
    tenant.admin("POST", "/v1/freeze", {"reason": "a leaked key"})
    assert len(needs(visitor)) == 2
    file.write_text("policies: []")
    tenant.admin("POST", "/v1/policies/reload")
    tenant.admin("DELETE", "/v1/freeze")
    assert needs(visitor) == {}


def refused_file(api: ControlApi, tenant: ControlApi) -> Path:
    """A policy file of the tenant that the service has refused."""
    file = api.directory / "policies" / tenant.tenant_id / "demo" / "some.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("policies: [{name: bad}]")
    assert tenant.call("POST", "/v1/policies/reload").status == 422
    return file


def needs(visitor: Visitor) -> dict[tuple[str, str], str]:
    """Where each text and tone leads."""
    lists = visitor.get("/console").main.find_all("ul", class_="notices")
    return {
        (each.text, each.attributes["class"].split()[-1]): each.find("a").attributes["href"]
        for one in lists
        for each in one.find_all("li")
    }


def report(api: ControlApi, sidecar_id: str, **changed: Any) -> None:
    held = api.admin("GET", "/v1/sidecars/policy-set?since=0")
    sent = {
        "sidecar_id": sidecar_id,
        "run_id": "9f1c2a7b0001",
        "version": "1.0.0",
        "agent_role": "support",
        "epoch": held["epoch"],
        "revision": held["revision"],
        "policy_set_age_ms": 400,
        "spool_depth": 0,
        **changed,
    }
    api.admin("POST", "/v1/sidecars/report", sent)


def tamper(api: ControlApi, tenant: ControlApi) -> None:
    with sqlite3.connect(api.directory / "data" / "sluice.db") as database:
        change = "UPDATE log_entries SET hash = zeroblob(32) WHERE seq = 3 AND tenant_id = ?"
        database.execute(change, (tenant.tenant_id,))
    tenant.admin("POST", "/v1/audit/verification")
    path = "/v1/audit/verification"
    until("the damage is found", lambda: tenant.admin("GET", path)["state"] == "damaged")


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 1), (1, 1), (1.2, 2), (3, 5), (7, 10), (11, 20), (999, 1000)]
)
def test_a_chart_ends_at_a_round_number(value: float, expected: float) -> None:
    assert ceiling(value) == expected


def test_a_chart_places_its_values() -> None:
    chart = line_chart("Rates", ["a", "b", "c"], [Series("Denied", [0, 5, 10])])
    assert 'points="46.0,156.0 339.0,83.0 632.0,10.0"' in chart
    bars = bar_chart("Numbers", ["a", "b"], [Series("A", [1, 0]), Series("B", [1, 2])])
    assert bars.count("<rect") == 3


def test_the_numbers_of_a_chart_fit_beside_it() -> None:
    for top, shown in ((5, "2.5"), (1000, "1,000"), (20_000, "20k"), (3_000_000, "2.5M")):
        assert f">{shown}</text>" in line_chart("Numbers", ["a"], [Series("A", [top])])


def test_a_chart_escapes_its_title() -> None:
    chart = line_chart('"><script>', [], [])
    assert isinstance(chart, Markup)
    assert "<script>" not in chart


def test_a_series_needs_a_value_for_each_label() -> None:
    with pytest.raises(ValueError, match="a value for each label"):
        bar_chart("Numbers", ["a", "b"], [Series("A", [1])])
