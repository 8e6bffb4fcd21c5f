"""The agent registry: registration, status changes, lists."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import quote

import pytest

from policies.definitions.model import AGENT_STATUSES
from tests.support.control_api import ControlApi

OPEN = {
    ("draft", "pending_approval"),
    ("draft", "deprecated"),
    ("pending_approval", "approved"),
    ("pending_approval", "draft"),
    ("pending_approval", "deprecated"),
    ("approved", "suspended"),
    ("approved", "deprecated"),
    ("suspended", "approved"),
    ("suspended", "deprecated"),
}
WAY = {
    "draft": [],
    "pending_approval": ["pending_approval"],
    "approved": ["pending_approval", "approved"],
    "suspended": ["pending_approval", "approved", "suspended"],
    "deprecated": ["deprecated"],
}


def listed(api: ControlApi, agent_id: str) -> Any:
    """The agent, without its activity."""
    shown = api.admin("GET", f"/v1/agents/{agent_id}")
    shown.pop("activity")
    return shown


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product(AGENT_STATUSES, AGENT_STATUSES))
)
def test_a_status_changes_only_as_the_contract_allows(
    api: ControlApi, before: str, after: str
) -> None:
    agent_id = f"{before}-{after}"
    api.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": "support"})
    for status in WAY[before]:
        api.admin("PATCH", f"/v1/agents/{agent_id}/status", {"status": status})
    entries = api.verified()["total"]
    shown = listed(api, agent_id)
    answer = api.call("PATCH", f"/v1/agents/{agent_id}/status", {"status": after})
    if before == after:
        assert (answer.status, answer.body) == (200, shown)
        assert api.verified()["total"] == entries
    elif (before, after) in OPEN:
        assert (answer.status, answer.body["status"]) == (200, after)
        assert api.verified()["total"] == entries + 1
    else:
        assert answer.status == 409
        assert f"`{before}`" in answer.body["message"]
        for move in (move for state, move in OPEN if state == before):
            assert f"`{move}`" in answer.body["message"]
        assert listed(api, agent_id) == shown
        assert api.verified()["total"] == entries


def test_an_agent_starts_as_a_draft_with_its_defaults(api: ControlApi) -> None:
    answer = api.call("POST", "/v1/agents", {"agent_role": "support"})
    agent = answer.body
    assert answer.status == 201
    assert agent["agent_id"].startswith("agt_")
    assert agent["status"] == "draft"
    assert agent["permitted_roles"] == ["support"]
    assert agent["credential_type"] == "api_key"
    assert agent["created_at"] == agent["updated_at"]
    assert listed(api, agent["agent_id"]) == agent


def test_a_taken_id_is_409(api: ControlApi) -> None:
    body = {"agent_role": "support", "agent_id": "taken"}
    assert api.call("POST", "/v1/agents", body).status == 201
    assert api.call("POST", "/v1/agents", body).status == 409


@pytest.mark.parametrize(
    "agent_id", ["spiffe://prod/ns/loans", "a b", "ä", "a%2Fb", "[x]*?", "..", "\u202e", "a" * 256]
)
def test_an_id_is_kept_byte_for_byte(api: ControlApi, agent_id: str) -> None:
    made = api.admin("POST", "/v1/agents", {"agent_role": "support", "agent_id": agent_id})
    assert made["agent_id"] == agent_id
    path = f"/v1/agents/{quote(agent_id, safe='')}"
    assert api.admin("GET", path)["agent_id"] == agent_id
    moved = api.admin("PATCH", f"{path}/status", {"status": "pending_approval"})
    assert moved["agent_id"] == agent_id


def test_ids_that_look_alike_are_different(api: ControlApi) -> None:
    for agent_id in ("Look", "look", "look ", "lo\u0308ok", "l\u00f6ok"):
        body = {"agent_role": "support", "agent_id": agent_id}
        assert api.call("POST", "/v1/agents", body).status == 201


@pytest.mark.parametrize(
    "body",
    [
        {"agent_role": "support", "status": "approved"},
        {"agent_role": "support", "permitted_roles": "support"},
        {"agent_role": "support", "permitted_roles": [""]},
        {"agent_role": "support", "credential_type": "password"},
        {"agent_role": "support", "description": "a\x00b"},
        {"agent_role": "support", "created_at": "2026-01-01T00:00:00.000000Z"},
        {"agent_role": None},
    ],
)
def test_an_invalid_registration_is_422(api: ControlApi, body: Any) -> None:
    assert api.call("POST", "/v1/agents", body).status == 422


def test_filters_reduce_the_list_and_pages_continue(tenant: ControlApi) -> None:
    for number in range(5):
        body = {
            "agent_id": f"a{number}",
            "agent_role": "support" if number % 2 else "other",
            "owner": "team",
            "framework": "langchain",
        }
        tenant.admin("POST", "/v1/agents", body)
    tenant.admin("PATCH", "/v1/agents/a1/status", {"status": "deprecated"})

    def ids(query: str) -> list[str]:
        return [row["agent_id"] for page in tenant.pages(f"/v1/agents?{query}") for row in page]

    assert ids("limit=2") == ["a4", "a3", "a2", "a1", "a0"]
    assert ids("agent_role=support&limit=1") == ["a3", "a1"]
    assert ids("status=deprecated") == ["a1"]
    assert ids("status=draft&agent_role=support") == ["a3"]
    assert ids("owner=team&framework=langchain&limit=4") == ["a4", "a3", "a2", "a1", "a0"]
    assert ids("owner=nobody") == []


def test_a_limit_of_zero_is_422_and_names_the_field(api: ControlApi) -> None:
    answer = api.call("GET", "/v1/agents?limit=0")
    assert answer.status == 422
    [line] = answer.body["details"].splitlines()
    assert line.startswith("limit: ")


def without_spans(activity: dict[str, Any]) -> dict[str, Any]:
    """What an idle agent did: nothing over time either."""
    spans = activity.pop("over_time")["spans"]
    assert not any(each["allowed"] or each["denied"] for each in spans)
    return activity


def test_a_text_is_searched_literally_in_names_owners_and_ids(api: ControlApi) -> None:
    for agent_id, fields in (
        ("agt_t1", {"display_name": "Zebra 100%"}),
        ("agt_t2", {"owner": "ZEBRA team"}),
        ("agt_zebra", {}),
        ("agt_t4", {"description": "horses"}),
    ):
        api.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": "text", **fields})

    def found(text: str) -> list[str]:
        agents = api.admin("GET", f"/v1/agents?text={quote(text)}&agent_role=text")
        return sorted(each["agent_id"] for each in agents)

    assert found("zebra") == ["agt_t1", "agt_t2", "agt_zebra"]
    assert (found("%"), found("_z"), found("\\")) == (["agt_t1"], ["agt_zebra"], [])


@pytest.mark.deep(
    stands_in="tests/control_api/store/queries/test_agents.py::test_a_text_finds_agents_as_it_is_and_in_any_case_on_either_database"
)
def test_a_text_finds_agents_by_name_owner_and_id(either_tenant: ControlApi) -> None:
    for agent_id, fields in (
        ("agt_1", {"display_name": "Returns 100%"}),
        ("agt_2", {"owner": "RETURNS team"}),
        ("agt_returns", {}),
        ("agt_4", {"description": "refunds"}),
    ):
        either_tenant.admin(
            "POST", "/v1/agents", {"agent_id": agent_id, "agent_role": "r", **fields}
        )

    def found(text: str) -> list[str]:
        agents = either_tenant.admin("GET", f"/v1/agents?text={quote(text)}&agent_role=r")
        return sorted(each["agent_id"] for each in agents)

    assert found("returns") == ["agt_1", "agt_2", "agt_returns"]
    assert found("0%") == ["agt_1"]
    assert found("_r") == ["agt_returns"]
    assert found("%") == ["agt_1"]
    assert found("\\") == []


@pytest.mark.deep(stands_in="test_an_agent_s_activity_is_that_of_the_last_seven_days")
def test_an_agent_shows_what_it_did_in_the_last_seven_days(fresh: ControlApi) -> None:
    fresh.approved("a1")
    idle = without_spans(fresh.admin("GET", "/v1/agents/a1")["activity"])
    nothing = {"total": 0, "allowed": 0, "denied": 0, "deny_rate": 0.0}
    assert idle == {**nothing, "last_active": None, "sources": []}
    for source in ("handbook", "payroll", "handbook"):
        fresh.evaluate(agent_id="a1", source_id=source)
    last = fresh.evaluate(agent_id="a1", source_id="handbook")
    fresh.evaluate(source_id="handbook")
    activity = fresh.admin("GET", "/v1/agents/a1")["activity"]
    over_time = activity.pop("over_time")
    assert over_time["span_minutes"] == 240
    assert len(over_time["spans"]) == 43  # seven days, and the part of a span before them
    sums = [sum(each[name] for each in over_time["spans"]) for name in ("allowed", "denied")]
    assert sums == [3, 1]
    event = next(each for each in fresh.events() if each["event_id"] == last["event_id"])
    assert over_time["spans"][-1]["begin"] <= event["timestamp"]
    assert activity == {
        "total": 4,
        "allowed": 3,
        "denied": 1,
        "deny_rate": 0.25,
        "last_active": event["timestamp"],
        "sources": [
            {"source_id": "handbook", "total": 3, "denied": 0},
            {"source_id": "payroll", "total": 1, "denied": 1},
        ],
    }
    fresh.time.ahead += 8 * 24 * 3600
    assert without_spans(fresh.admin("GET", "/v1/agents/a1")["activity"]) == idle


def test_an_agent_s_activity_is_that_of_the_last_seven_days(fresh: ControlApi) -> None:
    fresh.approved("agt_week")
    fresh.evaluate(agent_id="agt_week", source_id="payroll")
    last = fresh.evaluate(agent_id="agt_week")
    fresh.evaluate()
    shown = fresh.admin("GET", "/v1/agents/agt_week")["activity"]
    spans = shown["over_time"]["spans"]
    assert [sum(each[name] for each in spans) for name in ("allowed", "denied")] == [1, 1]
    (event,) = [each for each in fresh.events() if each["event_id"] == last["event_id"]]
    assert {**shown, "over_time": None} == {
        "total": 2,
        "allowed": 1,
        "denied": 1,
        "deny_rate": 0.5,
        "over_time": None,
        "last_active": event["timestamp"],
        "sources": [
            {"source_id": "handbook", "total": 1, "denied": 0},
            {"source_id": "payroll", "total": 1, "denied": 1},
        ],
    }
    for days, total in ((6, 2), (8, 0)):
        fresh.time.ahead = days * 86_400
        shown = fresh.admin("GET", "/v1/agents/agt_week")["activity"]
        assert (shown["total"], len(shown["sources"])) == (total, total)


def test_the_summary_counts_agents_by_status_and_denials_by_agent(api: ControlApi) -> None:
    before = api.admin("GET", "/v1/agents/stats/summary")
    api.approved("agt_denied")
    api.approved("agt_allowed")
    api.admin("POST", "/v1/agents", {"agent_id": "agt_waits", "agent_role": "support"})
    api.admin("PATCH", "/v1/agents/agt_waits/status", {"status": "pending_approval"})
    for agent in ("agt_denied", "agt_allowed"):
        api.evaluate(agent_id=agent)
    api.evaluate(agent_id="agt_denied", source_id="payroll")
    after = api.admin("GET", "/v1/agents/stats/summary")
    more = {name: after[name] - before[name] for name in AGENT_STATUSES}
    assert more == dict.fromkeys(AGENT_STATUSES, 0) | {"approved": 2, "pending_approval": 1}
    assert (after["total"], after["pending"]) == (before["total"] + 3, before["pending"] + 1)
    rates = {name: after["deny_rates"][f"agt_{name}"] for name in ("denied", "allowed")}
    assert rates == {"denied": 0.5, "allowed": 0.0}
    assert 0 < after["deny_rate"] < 1


@pytest.mark.deep(stands_in="test_the_summary_counts_agents_by_status_and_denials_by_agent")
def test_the_registry_counts_its_agents_and_their_denials(tenant: ControlApi) -> None:
    tenant.approved("a1")
    tenant.approved("a2")
    tenant.admin("POST", "/v1/agents", {"agent_id": "a3", "agent_role": "support"})
    tenant.admin("POST", "/v1/agents", {"agent_id": "stats", "agent_role": "support"})
    tenant.admin("PATCH", "/v1/agents/stats/status", {"status": "pending_approval"})
    tenant.evaluate(agent_id="a1")
    tenant.evaluate(agent_id="a1", source_id="payroll")
    tenant.evaluate(agent_id="a2")
    tenant.approved("a4")
    tenant.admin("PATCH", "/v1/agents/a4/status", {"status": "suspended"})
    shown = tenant.admin("GET", "/v1/agents?status=suspended")
    assert [each["agent_id"] for each in shown] == ["a4"]
    assert tenant.admin("GET", "/v1/agents/stats/summary") == {
        "total": 5,
        "draft": 1,
        "pending_approval": 1,
        "approved": 2,
        "suspended": 1,
        "deprecated": 0,
        "pending": 1,
        "deny_rate": 1 / 3,
        "deny_rates": {"a1": 0.5, "a2": 0.0},
    }


def test_an_update_keeps_what_it_does_not_name(api: ControlApi) -> None:
    api.approved("agt_kept", owner="Ann", framework="x")
    before, path = listed(api, "agt_kept"), "/v1/agents/agt_kept"
    changed = api.admin("PUT", path, {"description": "reads contracts"})
    assert changed | {"updated_at": ""} == before | {
        "description": "reads contracts",
        "updated_at": "",
    }
    moved = api.admin("PUT", path, {"agent_role": "other", "owner": None})
    assert (moved["status"], moved["owner"], moved["framework"]) == ("approved", None, "x")
    assert moved["permitted_roles"] == ["other"]
    assert api.evaluate(agent_id="agt_kept")["policy_name"] == "role_not_permitted"
    for given, roles in ((["support", "other"], ["support", "other"]), (None, ["other"])):
        assert api.admin("PUT", path, {"permitted_roles": given})["permitted_roles"] == roles
    entries = api.verified()["total"]
    api.admin("PUT", path, {})
    api.admin("PUT", path, {"agent_role": "other"})
    assert api.verified()["total"] == entries
    assert api.call("PUT", "/v1/agents/agt_none", {}).status == 404


@pytest.mark.deep(stands_in="test_an_update_keeps_what_it_does_not_name")
def test_an_update_changes_the_fields_given_and_never_the_status(either_tenant: ControlApi) -> None:
    either_tenant.approved("a1")
    before = listed(either_tenant, "a1")
    path = "/v1/agents/a1"
    changed = either_tenant.admin(
        "PUT", path, {"owner": "lending", "description": "reads contracts"}
    )
    assert changed | {"updated_at": ""} == before | {
        "owner": "lending",
        "description": "reads contracts",
        "updated_at": "",
    }
    assert either_tenant.admin("PUT", path, {"owner": None})["owner"] is None
    assert either_tenant.evaluate(agent_id="a1")["decision"] == "ALLOW"
    moved = either_tenant.admin("PUT", path, {"agent_role": "other"})
    assert (moved["permitted_roles"], moved["status"]) == (["other"], "approved")
    assert either_tenant.evaluate(agent_id="a1")["policy_name"] == "role_not_permitted"
    both = either_tenant.admin("PUT", path, {"permitted_roles": ["support", "other"]})
    assert both["permitted_roles"] == ["support", "other"]
    assert either_tenant.evaluate(agent_id="a1")["decision"] == "ALLOW"
    assert either_tenant.admin("PUT", path, {"permitted_roles": None})["permitted_roles"] == [
        "other"
    ]
    entries = either_tenant.verified()["total"]
    either_tenant.admin("PUT", path, {})
    either_tenant.admin("PUT", path, {"agent_role": "other"})
    assert either_tenant.verified()["total"] == entries
    assert either_tenant.call("PUT", "/v1/agents/none", {}).status == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "approved"},
        {"agent_role": None},
        {"agent_role": ""},
        {"permitted_roles": ["r"] * 33},
        {"credential_type": "password"},
        {"bound_key_id": "key_none"},
    ],
)
def test_an_update_that_breaks_the_schema_is_422(api: ControlApi, wrong: dict[str, Any]) -> None:
    api.call("POST", "/v1/agents", {"agent_id": "w", "agent_role": "support"})
    before = listed(api, "w")
    answer = api.call("PUT", "/v1/agents/w", wrong)
    assert answer.status == 422
    assert answer.body["details"].startswith(next(iter(wrong)))
    assert listed(api, "w") == before


def test_an_agent_can_only_be_bound_to_a_live_key(api: ControlApi) -> None:
    made = api.admin("POST", "/v1/keys", {"name": "k", "scope": "evaluate"})
    body = {"agent_role": "support", "bound_key_id": made["key_id"]}
    assert api.admin("POST", "/v1/agents", body)["bound_key_id"] == made["key_id"]
    api.admin("DELETE", f"/v1/keys/{made['key_id']}")
    assert api.call("POST", "/v1/agents", body).status == 422
