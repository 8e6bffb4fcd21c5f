"""Who changed what: the entries hold the digests of what the routes show, and nothing personal or
secret; the list shows them, with bodies that have the digests."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from control_api.log import change_history as module
from policies.trail.change import object_digest
from tests.support.control_api import ControlApi
from tests.support.open_store import sql

BODY: dict[str, Any] = {
    "name": "p",
    "agent_role": "support",
    "allowed_sources": ["a"],
    "denied_sources": [],
    "max_sensitivity": "low",
}


def rows_of(api: ControlApi, statement: str, **values: Any) -> list[Any]:
    return asyncio.run(sql(api.settings.database_url, statement, **values))


def recorded(api: ControlApi) -> list[dict[str, Any]]:
    """`pub` of every change, oldest first."""
    found = rows_of(api, "SELECT entry FROM log_entries WHERE kind = 'change' ORDER BY seq")
    return [orjson.loads(bytes(row.entry))["pub"] for row in found]


def last(api: ControlApi, what: str) -> dict[str, Any]:
    return [each for each in recorded(api) if each["what"] == what][-1]


def item(api: ControlApi, path: str, name: str, value: str) -> dict[str, Any]:
    [found] = [each for each in api.admin("GET", path) if each[name] == value]
    assert isinstance(found, dict)
    return found


def test_a_change_has_the_digests_of_the_object_before_and_after(api: ControlApi) -> None:
    body = {**BODY, "name": "digested"}
    policy = api.admin("POST", "/v1/policies", body)["policy_id"]
    api.admin("PUT", f"/v1/policies/{policy}", {**body, "allowed_sources": ["a", "b"]})
    new, old = api.admin("GET", f"/v1/policies/{policy}/history")
    pub = last(api, "policy.updated")
    assert pub["before_sha256"] == object_digest(old["policy"])
    assert pub["after_sha256"] == object_digest(new["policy"])
    assert pub["after"] == {"allowed_sources": ["a", "b"]}
    api.admin("DELETE", f"/v1/policies/{policy}")
    assert last(api, "policy.deleted")["after_sha256"] is None
    api.admin("POST", "/v1/agents", {"agent_id": "agt_digest", "agent_role": "r"})
    before = item(api, "/v1/agents", "agent_id", "agt_digest")
    assert last(api, "agent.registered")["after_sha256"] == object_digest(before)
    api.admin("PATCH", "/v1/agents/agt_digest/status", {"status": "pending_approval"})
    pub = last(api, "agent.status")
    assert pub["before_sha256"] == object_digest(before)
    assert pub["after_sha256"] == object_digest(item(api, "/v1/agents", "agent_id", "agt_digest"))
    key = api.admin("POST", "/v1/keys", {"name": "digest", "scope": "evaluate"})["key_id"]
    assert last(api, "key.created")["after_sha256"] == object_digest(
        item(api, "/v1/keys", "key_id", key)
    )
    api.admin("PATCH", f"/v1/keys/{key}/binding", {"bound_agent_id": "agt_digest"})
    assert last(api, "key.bound")["after_sha256"] == object_digest(
        item(api, "/v1/keys", "key_id", key)
    )
    frozen = api.admin("POST", "/v1/freeze", {"reason": "leaked"})
    assert last(api, "tenant.frozen")["after_sha256"] == object_digest(frozen)
    api.admin("DELETE", "/v1/freeze")
    api.evaluate(session_id="s-digest")
    before = item(api, "/v1/sessions", "session_id", "s-digest")
    api.admin("DELETE", "/v1/sessions/s-digest")
    after = item(api, "/v1/sessions", "session_id", "s-digest")
    pub = last(api, "session.revoked")
    assert pub["before_sha256"] == object_digest(before)
    assert pub["after_sha256"] == object_digest(after)
    for masked in (True, False):
        path = "/v1/admin/tenants/default/settings"
        settings = api.admin("PATCH", path, {"pii_masking": masked})
        assert last(api, "tenant.settings")["after_sha256"] == object_digest(settings)
    kept = api.admin("GET", "/v1/settings/retention")
    changed = api.admin("PUT", "/v1/settings/retention", {"retention_days": 99})
    pub = last(api, "settings.retention")
    assert pub["before_sha256"] == object_digest(kept)
    assert pub["after_sha256"] == object_digest(changed)


@pytest.mark.deep(stands_in="test_a_change_has_the_digests_of_the_object_before_and_after")
def test_the_digests_are_those_of_the_objects_that_the_routes_show(either: ControlApi) -> None:
    api = either
    policy = api.admin("POST", "/v1/policies", BODY)["policy_id"]
    api.admin("PUT", f"/v1/policies/{policy}", {**BODY, "allowed_sources": ["a", "b"]})
    new, old = api.admin("GET", f"/v1/policies/{policy}/history")
    pub = last(api, "policy.updated")
    assert pub["before_sha256"] == object_digest(old["policy"])
    assert pub["after_sha256"] == object_digest(new["policy"])
    assert (pub["before"], pub["after"]) == (
        {"allowed_sources": ["a"]},
        {"allowed_sources": ["a", "b"]},
    )
    api.admin("DELETE", f"/v1/policies/{policy}")
    assert last(api, "policy.deleted")["after_sha256"] is None

    api.admin("POST", "/v1/agents", {"agent_id": "agt_a", "agent_role": "r", "owner": "Ann"})
    before = item(api, "/v1/agents", "agent_id", "agt_a")
    assert last(api, "agent.registered")["after_sha256"] == object_digest(before)
    api.admin("PATCH", "/v1/agents/agt_a/status", {"status": "pending_approval"})
    pub = last(api, "agent.status")
    assert pub["before_sha256"] == object_digest(before)
    assert pub["after_sha256"] == object_digest(item(api, "/v1/agents", "agent_id", "agt_a"))

    key = api.admin("POST", "/v1/keys", {"name": "k", "scope": "evaluate"})["key_id"]
    before = item(api, "/v1/keys", "key_id", key)
    assert last(api, "key.created")["after_sha256"] == object_digest(before)
    api.admin("PATCH", f"/v1/keys/{key}/binding", {"bound_agent_id": "agt_a"})
    pub = last(api, "key.bound")
    assert pub["after_sha256"] == object_digest(item(api, "/v1/keys", "key_id", key))
    assert pub["after"] == {"bound_agent_id": "agt_a"}

    api.evaluate(session_id="s-1")
    before = item(api, "/v1/sessions", "session_id", "s-1")
    api.admin("DELETE", "/v1/sessions/s-1")
    pub = last(api, "session.revoked")
    assert pub["before_sha256"] == object_digest(before)
    after = item(api, "/v1/sessions", "session_id", "s-1")
    assert (pub["after_sha256"], pub["after"]) == (object_digest(after), {"status": "revoked"})

    frozen = api.admin("POST", "/v1/freeze", {"reason": "leaked by Ann"})
    assert last(api, "tenant.frozen")["after_sha256"] == object_digest(frozen)
    shown = api.admin("GET", "/v1/settings/retention")
    changed = api.admin("PUT", "/v1/settings/retention", {"retention_days": 99})
    pub = last(api, "settings.retention")
    assert pub["before_sha256"] == object_digest(shown)
    assert pub["after_sha256"] == object_digest(changed)
    settings = api.admin("PATCH", "/v1/admin/tenants/default/settings", {"pii_masking": True})
    assert last(api, "tenant.settings")["after_sha256"] == object_digest(settings)


@pytest.mark.parametrize("kind", ["session", "user"])
def test_the_digests_of_a_hold_reveal_nothing_of_a_user(api: ControlApi, kind: str) -> None:
    held = {"object_type": kind, "object_id": "x-1", "reason": "litigation"}
    placed = api.admin("POST", "/v1/audit/holds", held)
    path = f"/v1/audit/holds/{placed['hold_id']}/release"
    released = api.admin("POST", path, {"reason": "settled"})
    for shown in (placed, released):
        del shown["seq"]  # it is not known before the entry is placed
        shown["object_id"] = "x-1" if kind == "session" else ""
    first, pub = last(api, "hold.placed"), last(api, "hold.released")
    assert first["after_sha256"] == pub["before_sha256"] == object_digest(placed)
    assert pub["after_sha256"] == object_digest(released)
    assert ("x-1" in str(first), "x-1" in str(pub)) == (kind == "session", False)
    # An erasure takes the user from the hold, too.
    api.admin("POST", "/v1/audit/redact", {f"{kind}_id": "x-1", "reason": "asked"})
    query = "SELECT object_id FROM holds WHERE hold_id = :hold"
    [row] = rows_of(api, query, hold=placed["hold_id"])
    assert row.object_id == shown["object_id"]


def test_no_secret_and_nothing_personal_is_in_a_change(api: ControlApi) -> None:
    api.approved("agt_p", owner="Berta Personal", description="Berta's", display_name="Berta")
    key = api.new_key()
    secret = "https://hooks.example.com/Berta-path"
    rule = {"name": "r", "rule_type": "denial_spike", "threshold": 3, "webhook_url": secret}
    made = api.admin("POST", "/v1/alerts/rules", {**rule, "email": "berta@example.org"})
    api.admin("DELETE", f"/v1/alerts/rules/{made['rule_id']}")
    api.evaluate(session_id="s-p", user_id="Berta")
    api.admin("POST", "/v1/sessions/revoke", {"user_id": "Berta", "reason": "Berta left"})
    api.admin("POST", "/v1/freeze", {"reason": "because of Berta"})
    api.admin("DELETE", "/v1/freeze")
    text = orjson.dumps(recorded(api)).decode()
    assert "erta" not in text
    for hidden in (key, made["webhook_secret"]):
        assert hidden not in text
    pub = last(api, "agent.registered")
    assert pub["hidden"] == ["description", "display_name", "framework", "owner"]
    assert "hooks.example.com" in text
    shown = orjson.dumps(api.admin("GET", "/v1/audit/changes?limit=1000")).decode()
    assert "erta" not in shown


def test_the_list_shows_the_reason_of_an_agents_change(api: ControlApi) -> None:
    api.admin("POST", "/v1/agents", {"agent_id": "agt_reason", "agent_role": "support"})
    api.admin("PUT", "/v1/agents/agt_reason", {"agent_role": "sales", "reason": "moved"})
    path = "/v1/agents/agt_reason/status"
    api.admin("PATCH", path, {"status": "pending_approval", "reason": "board, 3 May"})
    pub = last(api, "agent.status")
    assert pub["detail"]["reason"] == "board, 3 May"
    assert "reason" not in pub["after"]
    shown = api.admin("GET", "/v1/audit/changes?object_id=agt_reason")
    assert [each["reason"] for each in shown] == ["board, 3 May", "moved", None]
    for refused in ("", "x" * 1025):
        body = {"status": "deprecated", "reason": refused}
        assert api.call("PATCH", path, body).status == 422


@pytest.mark.deep(stands_in="test_the_list_shows_the_reason_of_an_agents_change")
def test_the_reason_of_an_agents_change_is_in_the_log_and_in_the_list(either: ControlApi) -> None:
    api = either
    api.admin("POST", "/v1/agents", {"agent_id": "agt_why", "agent_role": "support"})
    api.admin("PUT", "/v1/agents/agt_why", {"agent_role": "sales", "reason": "moved"})
    path = "/v1/agents/agt_why/status"
    api.admin("PATCH", path, {"status": "pending_approval", "reason": "board, 3 May"})
    pub = last(api, "agent.status")
    assert pub["detail"]["reason"] == "board, 3 May"
    assert "reason" not in pub["after"]
    api.admin("PATCH", path, {"status": "deprecated"})
    shown = api.admin("GET", "/v1/audit/changes?object_id=agt_why")
    assert [each["reason"] for each in shown] == [None, "board, 3 May", "moved", None]
    for refused in ("", "x" * 1025, 7):
        body = {"status": "deprecated", "reason": refused}
        assert api.call("PATCH", path, body).status == 422
    assert api.verified()["valid"]


def test_the_list_shows_policies_that_are_too_large_for_an_entry(api: ControlApi) -> None:
    many = [f"source-{number:05}" for number in range(900)]  # more than an entry shows
    body = {**BODY, "name": "wide", "allowed_sources": many}
    policy = api.admin("POST", "/v1/policies", body)["policy_id"]
    api.admin("PUT", f"/v1/policies/{policy}", {**body, "allowed_sources": ["z", *many]})
    assert "after" not in last(api, "policy.updated")
    new, old = api.admin("GET", f"/v1/policies/{policy}/history")
    updated, created = api.admin("GET", f"/v1/audit/changes?object_id={policy}")
    assert (updated["before"], updated["after"]) == (old["policy"], new["policy"])
    assert (created["before"], created["after"]) == (None, old["policy"])
    query = "SELECT hash FROM log_entries WHERE tenant_id = 'default' AND seq = :seq"
    [row] = rows_of(api, query, seq=updated["seq"])
    assert updated["hash"] == bytes(row.hash).hex()
    # A history that was altered has not the digests that the log holds.
    altered = "UPDATE policy_versions SET body = :body WHERE version = 2 AND policy_id = :policy"
    rows_of(api, altered, body=b'{"name":"x"}', policy=policy)
    updated, _ = api.admin("GET", f"/v1/audit/changes?object_id={policy}")
    assert (updated["before"], updated["after"]) == (old["policy"], None)


@pytest.mark.deep(stands_in="test_the_list_shows_policies_that_are_too_large_for_an_entry")
def test_the_list_shows_whole_policies_and_what_differs_of_others(either: ControlApi) -> None:
    api = either
    many = [f"source-{number:05}" for number in range(900)]  # more than an entry shows
    policy = api.admin("POST", "/v1/policies", {**BODY, "allowed_sources": many})["policy_id"]
    api.admin("PUT", f"/v1/policies/{policy}", {**BODY, "allowed_sources": ["z", *many]})
    assert "after" not in last(api, "policy.updated")
    new, old = api.admin("GET", f"/v1/policies/{policy}/history")
    found = api.admin("GET", f"/v1/audit/changes?object_id={policy}")
    assert [each["action"] for each in found] == ["updated", "created"]
    assert (found[0]["before"], found[0]["after"]) == (old["policy"], new["policy"])
    assert (found[1]["before"], found[1]["after"]) == (None, old["policy"])
    assert found[0].keys() == {
        *("seq", "event_id", "hash", "timestamp", "object_type", "object_id"),
        *("action", "actor", "actor_name", "before", "after", "reason"),
    }
    [row] = rows_of(api, "SELECT hash FROM log_entries WHERE seq = :seq", seq=found[0]["seq"])
    assert found[0]["hash"] == bytes(row.hash).hex()
    # A history that was altered has not the digests that the log holds.
    rows_of(api, "UPDATE policy_versions SET body = :body WHERE version = 2", body=b'{"name":"x"}')
    [first, _] = api.admin("GET", f"/v1/audit/changes?object_id={policy}")
    assert (first["before"], first["after"]) == (old["policy"], None)


@pytest.mark.deep(stands_in="test_a_change_is_found_by_each_of_its_members")
def test_changes_are_filtered_and_paged(fresh: ControlApi) -> None:
    api = fresh
    for number in range(7):
        api.admin("POST", "/v1/agents", {"agent_id": f"agt_{number}", "agent_role": "r"})
        api.evaluate()
    everything = api.admin("GET", "/v1/audit/changes?limit=1000")
    assert [each["seq"] for each in everything] == sorted(
        (each["seq"] for each in everything), reverse=True
    )
    agents = [each for each in everything if each["object_type"] == "agent"]
    assert len(agents) == 7
    pages = api.pages("/v1/audit/changes?object_type=agent&limit=3")
    assert [each for page in pages for each in page] == agents
    middle = agents[3]
    at = middle["timestamp"]

    def listed(query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.admin("GET", f"/v1/audit/changes?limit=1000&{query}")
        return found

    assert listed(f"object_id={middle['object_id']}") == [middle]
    assert listed("action=registered") == agents
    assert listed(f"from={at}&object_type=agent") == agents[:4]
    assert listed(f"to={at}&object_type=agent") == agents[4:]
    assert listed(f"actor={middle['actor']}&action=registered") == agents
    assert listed("actor=nothing") == []
    assert listed("actor=system")
    assert api.call("GET", "/v1/audit/changes?object=agent").status == 422
    assert api.call("GET", "/v1/audit/changes?from=yesterday").status == 422


def test_a_change_is_found_by_each_of_its_members(tenant: ControlApi) -> None:
    for number in range(4):
        tenant.admin("POST", "/v1/agents", {"agent_id": f"agt_{number}", "agent_role": "r"})
        tenant.evaluate()

    def listed(query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = tenant.admin("GET", f"/v1/audit/changes?{query}")
        return found

    agents = listed("object_type=agent")
    assert [each["object_id"] for each in agents] == ["agt_3", "agt_2", "agt_1", "agt_0"]
    pages = tenant.pages("/v1/audit/changes?object_type=agent&limit=3")
    assert [each for page in pages for each in page] == agents
    middle, at = agents[1], agents[1]["timestamp"]
    assert listed(f"object_id={middle['object_id']}") == [middle]
    assert listed(f"actor={middle['actor']}&action=registered") == agents
    assert listed("action=updated") == []
    assert listed(f"from={at}&object_type=agent") == agents[:2]
    assert listed(f"to={at}&object_type=agent") == agents[2:]
    assert listed("actor=nothing") == []
    for refused in ("object=agent", "from=yesterday"):
        assert tenant.call("GET", f"/v1/audit/changes?{refused}").status == 422


def test_a_page_ends_after_so_many_entries_or_bytes(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        api.admin("POST", "/v1/agents", {"agent_id": f"agt_page_{number}", "agent_role": "r"})
    monkeypatch.setattr(module, "MAX_SCANNED", 4)
    monkeypatch.setattr(module, "_ROWS", 2)
    pages = api.pages("/v1/audit/changes?object_type=nothing")
    assert [next(pages), next(pages)] == [[], []]
    pages = api.pages("/v1/audit/changes?object_type=agent")
    found = [each["object_id"] for page in (next(pages), next(pages)) for each in page]
    assert found[:6] == [f"agt_page_{number}" for number in range(5, -1, -1)]
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 1)
    pages = api.pages("/v1/audit/changes?limit=1000")
    assert [len(next(pages)), len(next(pages))] == [1, 1]


@pytest.mark.parametrize("agent_id", ['a"b', "a\\b", "a/b", "é", "\u2028", "<b>", "\U0001f600"])
def test_an_object_with_any_name_is_found(either_tenant: ControlApi, agent_id: str) -> None:
    either_tenant.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": "r"})
    either_tenant.admin("POST", "/v1/agents", {"agent_id": f"{agent_id}2", "agent_role": "r"})
    [found] = either_tenant.admin("GET", f"/v1/audit/changes?object_id={quote(agent_id, safe='')}")
    assert found["object_id"] == agent_id


@pytest.mark.deep(stands_in="test_a_page_ends_after_so_many_entries_or_bytes")
def test_a_page_looks_at_a_bounded_number_of_entries(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = fresh
    for number in range(6):
        api.admin("POST", "/v1/agents", {"agent_id": f"agt_{number}", "agent_role": "r"})
    monkeypatch.setattr(module, "MAX_SCANNED", 4)
    monkeypatch.setattr(module, "_ROWS", 2)
    pages = list(api.pages("/v1/audit/changes?object_type=tenant"))
    assert [] in pages
    assert [each["action"] for page in pages for each in page] == ["created"]
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 1)
    pages = list(api.pages("/v1/audit/changes?limit=1000"))
    assert max(len(page) for page in pages) == 1


def test_a_change_needs_a_key_that_may_read(api: ControlApi) -> None:
    key = api.new_key("evaluate")
    assert api.call("GET", "/v1/audit/changes", key=key).status == 403
