"""Sidecar reports, which sidecars are live, and waiting until all have a revision."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.support.control_api import ControlApi, asked

REPORT = "/v1/sidecars/report"
LIST = "/v1/sidecars"


def tell(api: ControlApi, sidecar_id: str, **changed: Any) -> dict[str, Any]:
    body = {
        "sidecar_id": sidecar_id,
        "run_id": "run-1",
        "version": "1.0.0",
        "epoch": epoch(api),
        "revision": 0,
        "spool_depth": 0,
        **changed,
    }
    answer: dict[str, Any] = api.admin("POST", REPORT, body)
    return answer


def epoch(api: ControlApi) -> str:
    return str(api.admin("GET", "/v1/sidecars/policy-set?since=0")["epoch"])


def waited(api: ControlApi, revision: int, timeout: int) -> tuple[list[str], float]:
    """The sidecars that are behind, and the seconds until the response."""
    started = time.monotonic()
    rows = api.admin("GET", f"{LIST}?wait_for={revision}&timeout={timeout}")
    return [row["sidecar_id"] for row in rows], time.monotonic() - started


def revision_of(answer: Any) -> int:
    return int(answer.headers["X-Sluice-Revision"])


def test_a_report_is_listed_as_it_was_sent(either_tenant: ControlApi) -> None:
    report = {
        "agent_id": "agt",
        "agent_role": "loan_underwriter",
        "revision": 3,
        "policy_set_age_ms": 1500,
        "spool_depth": 7,
        "oldest_unshipped_ms": 900,
        "refusing": "spool: it is full",
        "forked": "at 7 entries the log has another root",
    }
    heard = tell(either_tenant, "s-1", **report)
    assert heard["revision"] >= 1
    tell(either_tenant, "s-2")
    second, first = either_tenant.admin("GET", LIST)
    assert (first["sidecar_id"], second["sidecar_id"]) == ("s-1", "s-2")
    assert {name: first[name] for name in report} == report
    assert first["live"]
    assert not first["duplicate"]
    assert first["last_seen"] <= heard["now"]
    tell(either_tenant, "s-1", revision=4)
    again = either_tenant.admin("GET", LIST)[1]
    assert (again["revision"], again["refusing"], again["forked"]) == (4, None, None)
    assert again["first_seen"] == first["first_seen"]
    assert again["last_seen"] > first["last_seen"]
    # One whose key is revoked can't report that it refuses.
    made = either_tenant.admin(
        "POST", "/v1/keys", {"name": "s-3", "scope": "sidecar", "agent_ids": ["*"]}
    )
    report = {"run_id": "r", "version": "1.0.0", "revision": 0, "spool_depth": 0}
    body = {"sidecar_id": "s-3", "epoch": epoch(either_tenant), **report}
    assert either_tenant.call("POST", REPORT, body, key=made["key"]).status == 200
    assert either_tenant.admin("GET", LIST)[0]["refusing"] is None
    either_tenant.admin("DELETE", f"/v1/keys/{made['key_id']}")
    refusing = {row["sidecar_id"]: row["refusing"] for row in either_tenant.admin("GET", LIST)}
    assert refusing == {"s-1": None, "s-2": None, "s-3": "key revoked"}
    behind = either_tenant.admin("GET", f"{LIST}?wait_for=999999&timeout=0")
    assert {row["sidecar_id"]: row["refusing"] for row in behind}["s-3"] == "key revoked"


def test_unknown_fields_of_a_newer_sidecar_are_ignored(api: ControlApi) -> None:
    tell(api, "newer", colour="green")
    assert "newer" in [row["sidecar_id"] for row in api.admin("GET", LIST)]


def test_the_list_of_sidecars_is_paged(tenant: ControlApi) -> None:
    for number in range(5):
        tell(tenant, f"s-{number}")
    answer = tenant.call("GET", f"{LIST}?limit=2")
    assert [row["sidecar_id"] for row in answer.body] == ["s-4", "s-3"]
    assert 'rel="next"' in answer.headers["Link"]


def test_a_run_that_reports_again_after_another_is_a_duplicate(api: ControlApi) -> None:
    told = []
    for run in ("a", "a", "b", "a"):
        tell(api, "s-copied", run_id=run)
        [row] = [row for row in api.admin("GET", LIST) if row["sidecar_id"] == "s-copied"]
        told.append(row["duplicate"])
    assert told == [False, False, False, True]
    # A restarted sidecar is not a copy, however often it was restarted.
    for run in ("a", "b", "b", "c", "b"):
        tell(api, "s-restarted", run_id=run)
        [row] = [row for row in api.admin("GET", LIST) if row["sidecar_id"] == "s-restarted"]
        told.append(row["duplicate"])
    assert told[4:] == [False, False, False, False, True]


@pytest.mark.deep(stands_in="test_a_run_that_reports_again_after_another_is_a_duplicate")
def test_a_restart_is_no_duplicate_and_a_copy_is(either_tenant: ControlApi) -> None:
    def duplicate() -> bool:
        return bool(either_tenant.admin("GET", LIST)[0]["duplicate"])

    for run in ("a", "a", "b", "b", "c"):
        tell(either_tenant, "s-1", run_id=run)
        assert not duplicate()
    tell(either_tenant, "s-1", run_id="b")
    assert duplicate()


def test_every_management_write_returns_its_revision(tenant: ControlApi) -> None:
    before = tenant.admin("GET", "/v1/sidecars/policy-set?since=0")["revision"]
    agent = tenant.call("POST", "/v1/agents", {"agent_role": "loan_underwriter"})
    assert revision_of(agent) == before + 1
    rule = {"name": "r", "rule_type": "denial_spike", "threshold": 1}
    assert revision_of(tenant.call("POST", "/v1/alerts/rules", rule)) == before + 1
    path = f"/v1/agents/{agent.body['agent_id']}/status"
    moved = tenant.call("PATCH", path, {"status": "pending_approval"})
    assert revision_of(moved) == before + 2
    assert revision_of(tenant.call("POST", "/v1/policies/reload")) >= before + 2
    for reading in (
        tenant.call("GET", "/v1/agents"),
        tenant.call("POST", "/v1/context/evaluate", asked()),
    ):
        assert "X-Sluice-Revision" not in reading.headers
    refused = tenant.call("PATCH", path, {"status": "draft-ish"})
    assert "X-Sluice-Revision" not in refused.headers


def test_waiting_lists_the_sidecars_that_lag_and_ends_with_the_last_report(
    tenant: ControlApi,
) -> None:
    tell(tenant, "s-1", revision=5)
    tell(tenant, "s-2", revision=4)
    assert waited(tenant, 4, 20)[0] == []
    assert waited(tenant, 5, 0)[0] == ["s-2"]
    later = threading.Timer(0.2, lambda: tell(tenant, "s-2", revision=5))
    later.start()
    behind, seconds = waited(tenant, 5, 20)
    later.join()
    assert (behind, seconds < 15) == ([], True)


@pytest.mark.deep(
    stands_in="test_waiting_lists_the_sidecars_that_lag_and_ends_with_the_last_report"
)
def test_waiting_ends_when_every_live_sidecar_has_the_revision(either_tenant: ControlApi) -> None:
    assert waited(either_tenant, 10**9, 5)[0] == []  # there is none
    tell(either_tenant, "s-1", revision=5)
    tell(either_tenant, "s-2", revision=4)
    assert waited(either_tenant, 4, 5)[0] == []
    behind, seconds = waited(either_tenant, 5, 1)
    assert behind == ["s-2"]
    assert 0.9 < seconds < 3
    assert waited(either_tenant, 5, 0)[0] == ["s-2"]

    later = threading.Timer(0.4, lambda: tell(either_tenant, "s-2", revision=5))
    later.start()
    behind, seconds = waited(either_tenant, 5, 20)
    later.join()
    assert behind == []
    assert 0.3 < seconds < 5


def test_a_revision_of_another_store_does_not_count(api: ControlApi) -> None:
    tell(api, "elsewhere", epoch="another", revision=10**6)
    assert "elsewhere" in waited(api, 1, 0)[0]
