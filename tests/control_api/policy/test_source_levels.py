"""Levels that a tenant states of its sources: a floor of every evaluation, published with the
policy set, in the record, and derived again from the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control_api.policy.source_operations import MAX_LEVELS
from policies.ground.canonical import encode
from policies.sets.policy_set import document_digest
from policies.sets.source_levels import SOURCES
from policies.trail.recompute.recomputer import Recomputer
from tests.support.control_api import ControlApi, asked

ROUTE = "/v1/sources"


def state(api: ControlApi, pattern: str, level: str) -> Any:
    return api.call("PUT", f"{ROUTE}/{pattern}", {"sensitivity_level": level})


def lines(api: ControlApi) -> list[dict[str, Any]]:
    return [json.loads(line) for line in api.call("GET", "/v1/audit/export").raw.splitlines()]


def test_the_highest_level_decides_and_explanations_name_its_origin(
    either_tenant: ControlApi,
) -> None:
    api = either_tenant
    asking = {"source_id": "handbook", "sensitivity_level": "low"}
    assert api.evaluate(**asking)["decision"] == "ALLOW"
    assert state(api, "hand*", "critical").body == {
        "source_pattern": "hand*",
        "sensitivity_level": "critical",
    }
    for route in ("evaluate", "simulate"):
        answer = api.call("POST", f"/v1/context/{route}?explain=true", asked(**asking)).body
        assert answer["decision"] == "DENY"
        assert answer["explain"]["levels"] == {
            "request": "low",
            "sidecar": None,
            "tenant": "critical",
            "held": "critical",
            "by": "tenant",
        }
    batch = api.admin("POST", "/v1/context/evaluate/batch", {"items": [asked(**asking)]})
    assert [each["decision"] for each in batch["results"]] == ["DENY"]
    assert api.call("DELETE", f"{ROUTE}/hand*").status == 200
    assert api.evaluate(**asking)["decision"] == "ALLOW"


def test_decisions_by_the_tenants_levels_derive_again_from_the_export(
    either_tenant: ControlApi,
) -> None:
    api = either_tenant
    api.evaluate(source_id="handbook", sensitivity_level="low")
    state(api, "handbook", "medium")
    event = api.evaluate(source_id="handbook", sensitivity_level="low")
    state(api, "handbook", "critical")
    api.evaluate(source_id="handbook", sensitivity_level="low")
    found = lines(api)
    entries = [line["entry"] for line in found if "entry" in line]
    record = next(each for each in entries if each["eid"] == event["event_id"])
    assert record["pub"]["request"]["sensitivity_level"] == "medium"
    assert record["pub"]["facts"]["levels"] == {"request": "low", "tenant": "medium"}
    documents = [line["policy"] for line in found if "policy" in line]
    assert [each["levels"] for each in documents if "levels" in each] == [
        [["handbook", "medium"]],
        [["handbook", "critical"]],
    ]
    assert not derived(found).findings
    # An insider who lowers the level, or whose it was, contradicts the document.
    for change in ({"tenant": "low"}, {"tenant": None}):
        levels = {**record["pub"]["facts"]["levels"], **change}
        record["pub"]["facts"]["levels"] = {n: v for n, v in levels.items() if v is not None}
        record["pub"]["request"]["sensitivity_level"] = "low"
        assert derived(found).findings == 1


def derived(found: list[dict[str, Any]]) -> Any:
    documents: dict[str, bytes] = {}
    for line in found:
        if "policy" in line:
            body = encode(line["policy"])
            documents[document_digest(body)] = body
    recomputer = Recomputer(documents.get)
    for line in found:
        if "entry" in line:
            recomputer.feed(line["entry"])
    return recomputer.counts


def test_changes_are_listed_recorded_and_published(either_tenant: ControlApi) -> None:
    api = either_tenant
    state(api, "b", "low")
    answer = state(api, "rest:%2F%2Fcrm%2F*", "high")
    assert int(answer.headers["X-Sluice-Revision"]) > 0
    assert [each["source_pattern"] for each in api.admin("GET", ROUTE)] == ["b", "rest://crm/*"]
    first = api.call("GET", f"{ROUTE}?limit=1")
    assert [each["source_pattern"] for each in first.body] == ["b"]
    assert "cursor=" in first.headers["Link"]
    state(api, "b", "high")
    api.admin("DELETE", f"{ROUTE}/b")
    changes = api.admin("GET", "/v1/audit/changes?object_type=source&object_id=b")
    assert [each["action"] for each in changes] == ["deleted", "updated", "created"]
    named = api.admin("POST", "/v1/sidecars/policy-set/documents", {"names": [SOURCES]})
    assert "rest://crm/*" in json.dumps(named["documents"])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("a", {"sensitivity_level": "secret"}, 422), ("a", {}, 422), ("a%00", {}, 422)],
)
def test_an_unknown_level_is_refused(tenant: ControlApi, path: str, body: Any, status: int) -> None:
    assert tenant.call("PUT", f"{ROUTE}/{path}", body).status == status
    assert tenant.call("DELETE", f"{ROUTE}/absent").status == 404


def test_a_key_that_reads_may_list_and_not_change(tenant: ControlApi) -> None:
    key = tenant.new_key("read")
    assert tenant.call("GET", ROUTE, key=key).status == 200
    asked_level = {"sensitivity_level": "low"}
    assert tenant.call("PUT", f"{ROUTE}/a", asked_level, key=key).status == 403
    assert MAX_LEVELS == 1000


def test_the_fleet_shows_which_sidecars_ignore_the_levels(tenant: ControlApi) -> None:
    report = {
        "run_id": "r",
        "version": "0.0.1",
        "epoch": "e",
        "revision": 1,
        "spool_depth": 0,
    }
    tenant.admin("POST", "/v1/sidecars/report", {**report, "sidecar_id": "before"})
    now = {**report, "sidecar_id": "now", "source_levels": True}
    tenant.admin("POST", "/v1/sidecars/report", now)
    listed = {each["sidecar_id"]: each for each in tenant.admin("GET", "/v1/sidecars")}
    assert not listed["before"]["source_levels"]
    assert listed["now"]["source_levels"]
