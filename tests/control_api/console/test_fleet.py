"""The fleet's page: what is wrong with each sidecar, in words, the worst first."""

from __future__ import annotations

from typing import Any

import pytest

from control_api.console.views.fleet import troubles
from control_api.fleet.models import SidecarResponse
from sidecar.policy_cache.replica import MAX_WAIT
from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi


def report(api: ControlApi, sidecar_id: str, revision: int, **changed: Any) -> None:
    body = {
        "sidecar_id": sidecar_id, "run_id": f"run-{sidecar_id}", "version": "1.0.0",
        "agent_id": None, "agent_role": None, "policy_set_age_ms": 400, "spool_depth": 0,
        "epoch": api.admin("GET", "/v1/sidecars/policy-set?since=0")["epoch"],
        "revision": revision,
    }  # fmt: skip
    body |= changed
    given = {name: value for name, value in body.items() if value is not None}
    api.admin("POST", "/v1/sidecars/report", given)


def report_troubles(api: ControlApi, revision: int) -> None:
    report(api, "b-late", revision - 1)
    report(api, "c-full", revision, spool_depth=212, oldest_unshipped_ms=45_000)
    report(api, "d-forked", revision, forked="size 7 has another root")
    report(api, "e-stale", revision, policy_set_age_ms=61_000)


def require_sorted(visitor: Visitor) -> Shown:
    """Return the page, on which those with troubles come before `a-fine` and say what is wrong."""
    shown = visitor.get("/console/fleet")
    rows = {row.find("th").text: row.text for row in shown.main.find("tbody").find_all("tr")}
    assert list(rows) == ["d-forked", "e-stale", "b-late", "c-full", "a-fine"]
    assert "contradicts the checkpoint" in rows["d-forked"]
    assert "1 min ago" in rows["e-stale"]
    assert "policies that are 1 change old" in rows["b-late"]
    assert "212 records on its disk" in rows["c-full"]
    assert "in order" in rows["a-fine"]
    troubled = visitor.get("/console/fleet?show=troubled")
    assert "a-fine" not in troubled.main.find("tbody").text
    return shown


def test_sidecars_with_troubles_come_before_those_in_order(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert "No sidecar has reported" in console.get("/console/fleet").text
    revision = tenant.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"]
    report(tenant, "a-fine", revision, agent_id="agt_1", agent_role="support")
    report_troubles(tenant, revision)
    require_sorted(console)


@pytest.mark.deep(stands_in="test_sidecars_with_troubles_come_before_those_in_order")
def test_sidecars_with_troubles_come_first_with_their_cause(fresh: ControlApi) -> None:
    visitor = Visitor(fresh).sign_in(fresh.admin_key)
    assert "No sidecar has reported" in visitor.get("/console/fleet").text
    revision = fresh.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"]
    # As old as the policies of a sidecar that polls can be while all is well.
    usual = round(2 * MAX_WAIT * 1000)
    fine = {"agent_id": "agt_1", "agent_role": "support", "policy_set_age_ms": usual}
    report(fresh, "a-fine", revision, **fine)
    report_troubles(fresh, revision)
    shown = require_sorted(visitor)
    missing = shown.main.find("section", aria_labelledby="change")
    assert "a-fine" in missing.text
    assert "none yet" in missing.text
    fresh.time.ahead += 60
    silent = visitor.get("/console/fleet").main.find("tbody").find_all("tr")
    assert all("has not reported" in row.text for row in silent)


def test_every_trouble_is_described_in_words() -> None:
    fine = SidecarResponse(**{**SidecarResponse.example, "revision": 5})
    assert troubles(fine, 5) == []
    worst = SidecarResponse(
        **{
            **SidecarResponse.example,
            "revision": 4,
            "policy_set_age_ms": None,
            "refusing": "disk",
            "forked": "x",
            "duplicate": True,
            "spool_depth": 1,
            "oldest_unshipped_ms": 10_001,
        }
    )
    words = [each.word for each in troubles(worst, 5)]
    assert words == ["diverging", "duplicate", "refusing", "no policies", "late", "shipping late"]


def test_a_sidecar_of_an_older_version_is_marked_as_ignoring_the_levels(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    tenant.admin("PUT", "/v1/sources/salaries", {"sensitivity_level": "critical"})
    revision = tenant.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"]
    report(tenant, "before", revision)
    report(tenant, "now", revision, source_levels=True)
    shown = console.get("/console/fleet")
    rows = {row.find("th").text: row.text for row in shown.main.find("tbody").find_all("tr")}
    assert "ignores the levels" in rows["before"]
    assert "ignores the levels" not in rows["now"]
