"""A frozen tenant over the API: every evaluation is denied and recorded until the freeze ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_api import ControlApi, asked, running_control_api
from tests.support.waiting import until

REASON = {"reason": "a leaked key reads contracts"}
HEADER = "X-Sluice-Revision"


def freeze(api: ControlApi) -> dict[str, Any]:
    state: dict[str, Any] = api.admin("POST", "/v1/freeze", REASON)
    return state


def named(api: ControlApi, **changed: Any) -> str:
    name: str = api.evaluate(**changed)["policy_name"]
    return name


def test_a_freeze_denies_whatever_other_settings_say_until_it_is_lifted(
    tenant: ControlApi,
) -> None:
    none = {"frozen": False, "reason": None, "frozen_at": None}
    assert tenant.admin("GET", "/v1/freeze") == none
    assert named(tenant, session_id="before") == "support-reads"
    first = tenant.call("POST", "/v1/freeze", REASON)
    state = first.body
    assert state == {"frozen": True, **REASON, "frozen_at": state["frozen_at"]}
    assert tenant.admin("GET", "/v1/freeze") == state
    again = tenant.call("POST", "/v1/freeze", {"reason": "another"})
    assert (again.status, again.body) == (200, state)
    assert again.headers[HEADER] == first.headers[HEADER]
    answer: dict[str, Any] = {}
    for changed in ({}, {"agent_id": "stranger"}, {"source_id": "payroll"}):
        answer = tenant.evaluate(**changed)
        assert (answer["decision"], answer["policy_name"]) == ("DENY", "tenant_frozen")
        assert state["frozen_at"] in answer["reason"]
        assert "leaked" not in answer["reason"], "an agent hears it"
    [event] = tenant.events("?limit=1")
    assert (event["policy_name"], event["check"]) == ("tenant_frozen", None)
    assert (event["policy_version"], event["reason"]) == (None, answer["reason"])
    batch = {"items": [asked(), asked(source_id="payroll")]}
    results = tenant.admin("POST", "/v1/context/evaluate/batch", batch)["results"]
    results.append(tenant.admin("POST", "/v1/context/simulate", asked()))
    assert {each["policy_name"] for each in results} == {"tenant_frozen"}
    for session in ("before", "during"):
        assert named(tenant, session_id=session) == "tenant_frozen"
    assert [row["session_id"] for row in tenant.admin("GET", "/v1/sessions")] == ["before"]
    path = f"/v1/admin/tenants/{tenant.tenant_id}/settings"
    tenant.admin("PATCH", path, {"require_agent_id": True})
    assert named(tenant) == "tenant_frozen"
    lifted = tenant.call("DELETE", "/v1/freeze")
    assert lifted.body == none
    once_more = tenant.call("DELETE", "/v1/freeze")
    assert (once_more.body, once_more.headers[HEADER]) == (none, lifted.headers[HEADER])
    assert named(tenant) == "agent_id_required"
    tenant.admin("PATCH", path, {"require_agent_id": False})
    assert named(tenant, session_id="during") == "support-reads"
    changes = tenant.admin("GET", "/v1/audit/changes?object_type=tenant")
    found = [each["action"] for each in changes if "frozen" in each["action"]]
    assert found == ["unfrozen", "frozen"]


@pytest.mark.deep(stands_in="test_a_freeze_denies_whatever_other_settings_say_until_it_is_lifted")
def test_a_freeze_denies_everything_and_is_lifted_again(either: ControlApi) -> None:
    either.approved("a1")
    none = {"frozen": False, "reason": None, "frozen_at": None}
    assert either.admin("GET", "/v1/freeze") == none
    assert either.evaluate()["decision"] == "ALLOW"
    state = freeze(either)
    assert state == {"frozen": True, **REASON, "frozen_at": state["frozen_at"]}
    assert either.admin("GET", "/v1/freeze") == state
    for changed in ({}, {"agent_id": "a1"}, {"agent_id": "stranger"}, {"source_id": "payroll"}):
        answer = either.evaluate(**changed)
        assert (answer["decision"], answer["policy_name"]) == ("DENY", "tenant_frozen")
        assert state["frozen_at"] in answer["reason"]
        assert "leaked" not in answer["reason"], "an agent hears it"
        event = either.admin("GET", f"/v1/audit/lineage/{answer['event_id']}")["event"]
        assert (event["decision"], event["policy_name"]) == ("DENY", "tenant_frozen")
        assert (event["check"], event["policy_version"]) == (None, None)
        assert event["reason"] == answer["reason"]
    assert either.admin("DELETE", "/v1/freeze") == none
    assert either.evaluate()["decision"] == "ALLOW"
    assert either.evaluate(agent_id="a1")["decision"] == "ALLOW"
    either.verified()


@pytest.mark.deep(stands_in="test_a_freeze_denies_whatever_other_settings_say_until_it_is_lifted")
def test_freezing_or_lifting_twice_changes_nothing(tenant: ControlApi) -> None:
    first = tenant.call("POST", "/v1/freeze", REASON)
    entries = tenant.verified()["total"]
    again = tenant.call("POST", "/v1/freeze", {"reason": "another"})
    assert (again.status, again.body) == (200, first.body)
    assert again.headers[HEADER] == first.headers[HEADER]
    assert tenant.verified()["total"] == entries
    lifted = tenant.call("DELETE", "/v1/freeze")
    assert int(lifted.headers[HEADER]) > int(first.headers[HEADER])
    entries = tenant.verified()["total"]
    once_more = tenant.call("DELETE", "/v1/freeze")
    assert (once_more.status, once_more.body) == (200, lifted.body)
    assert once_more.headers[HEADER] == lifted.headers[HEADER]
    assert tenant.verified()["total"] == entries


@pytest.mark.deep(stands_in="test_a_freeze_holds_over_a_restart_and_is_counted_under_its_own_name")
def test_a_freeze_holds_over_a_restart_and_other_settings(either: ControlApi) -> None:
    state = freeze(either)
    path = "/v1/admin/tenants/default/settings"
    either.admin("PATCH", path, {"require_agent_id": True})
    assert named(either) == "tenant_frozen"
    either.restart()
    assert either.admin("GET", "/v1/freeze") == state
    assert named(either) == "tenant_frozen"
    either.admin("DELETE", "/v1/freeze")
    assert named(either) == "agent_id_required"
    either.admin("PATCH", path, {"require_agent_id": False})
    assert named(either) == "support-reads"


@pytest.mark.deep(
    stands_in="tests/control_api/tenants/test_tenants.py::test_another_process_learns_of_a_deactivation_within_a_second"
)
def test_a_freeze_is_in_force_at_another_replica_within_a_second(either: ControlApi) -> None:
    url = either.environ.get("SLUICE_DATABASE_URL")
    with running_control_api(either.directory, policies=None, database_url=url) as other:
        assert named(other) == "support-reads"
        freeze(either)
        until("the other process knows of the freeze", lambda: named(other) == "tenant_frozen")
        other.admin("DELETE", "/v1/freeze")
        until("the freeze is lifted", lambda: named(either) == "support-reads")


@pytest.mark.deep(stands_in="test_a_freeze_denies_whatever_other_settings_say_until_it_is_lifted")
def test_a_batch_and_a_simulation_are_denied_too(tenant: ControlApi) -> None:
    freeze(tenant)
    body = {"items": [asked(), asked(source_id="payroll"), asked()]}
    results = tenant.admin("POST", "/v1/context/evaluate/batch", body)["results"]
    assert [each["policy_name"] for each in results] == ["tenant_frozen"] * 3
    simulated = tenant.admin("POST", "/v1/context/simulate", asked())
    assert (simulated["policy_name"], simulated["event_id"]) == ("tenant_frozen", None)
    assert len(tenant.events("?decision=DENY")) == 3


@pytest.mark.parametrize("path", ["evaluate", "simulate"])
def test_an_explanation_describes_how_to_lift_a_freeze(api: ControlApi, path: str) -> None:
    freeze(api)
    told = api.admin("POST", f"/v1/context/{path}?explain=true", asked(source_id="payroll"))
    api.admin("DELETE", "/v1/freeze")
    outcomes = {check["outcome"] for check in told["explain"]["checks"]}
    assert outcomes == {"not_reached"}
    assert told["explain"]["nearest_miss"] == {
        "check": None,
        "policy_name": "tenant_frozen",
        "change": "lift the tenant's freeze (`DELETE /v1/freeze`); and take `payroll` out of "
        "`denied_sources` of policy `support-reads`; and add `payroll` to `allowed_sources` of "
        "policy `support-reads`",
    }


@pytest.mark.deep(stands_in="test_a_freeze_denies_whatever_other_settings_say_until_it_is_lifted")
def test_no_session_is_claimed_while_the_tenant_is_frozen(tenant: ControlApi) -> None:
    tenant.evaluate(session_id="before")
    freeze(tenant)
    for session_id in ("before", "during"):
        assert named(tenant, session_id=session_id) == "tenant_frozen"
    assert [row["session_id"] for row in tenant.admin("GET", "/v1/sessions")] == ["before"]
    tenant.admin("DELETE", "/v1/freeze")
    for session_id in ("before", "during"):
        assert tenant.evaluate(session_id=session_id)["decision"] == "ALLOW"


def test_management_and_other_tenants_are_not_affected_by_a_freeze(fresh: ControlApi) -> None:
    made = fresh.call("POST", "/v1/admin/tenants", {"name": "other"}).body
    freeze(fresh)
    other = made["admin_key"]
    denied = fresh.call("POST", "/v1/context/evaluate", asked(), key=other).body
    assert denied["policy_name"] == "default_deny"
    assert not fresh.call("GET", "/v1/freeze", key=other).body["frozen"]
    fresh.approved("a1")
    fresh.admin("DELETE", f"/v1/policies/{fresh.admin('GET', '/v1/policies')[0]['policy_id']}")


def test_a_freeze_holds_over_a_restart_and_is_counted_under_its_own_name(
    fresh: ControlApi,
) -> None:
    state = freeze(fresh)
    path = "/v1/admin/tenants/default/settings"
    fresh.admin("PATCH", path, {"require_agent_id": True})
    fresh.restart()
    assert fresh.admin("GET", "/v1/freeze") == state
    assert named(fresh) == "tenant_frozen"
    shown = fresh.call("GET", "/metrics", key=None).raw.decode()
    sample = 'sluice_decisions_total{check="tenant_frozen",decision="DENY"} 1.0'
    assert sample in shown


@pytest.mark.parametrize(
    "body", [{}, {"reason": None}, {"reason": 1}, {"reason": "a", "until": "b"}, {"reason": "a\0"}]
)
def test_a_freeze_without_a_reason_is_422(api: ControlApi, body: Any) -> None:
    assert api.call("POST", "/v1/freeze", body).status == 422
    assert not api.admin("GET", "/v1/freeze")["frozen"]
