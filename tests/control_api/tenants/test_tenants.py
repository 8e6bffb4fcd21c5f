"""Tenants: created by the superadmin, isolated from each other, deactivated and reactivated."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_api import POLICIES, ControlApi, asked, running_control_api
from tests.support.waiting import until

TENANTS = "/v1/admin/tenants"


def made(api: ControlApi, name: str = "acme") -> tuple[str, str]:
    answer = api.call("POST", TENANTS, {"name": name})
    assert answer.status == 201, answer.raw
    assert list(answer.body) == ["tenant_id", "admin_key"]
    return answer.body["tenant_id"], answer.body["admin_key"]


def test_a_new_tenant_has_a_key_settings_of_its_own_and_nothing_else(api: ControlApi) -> None:
    tenant_id, key = made(api, "begins")
    assert [each["name"] for each in api.call("GET", "/v1/keys", key=key).body] == ["first admin"]
    assert api.call("GET", "/v1/policies", key=key).body == []
    assert api.call("GET", "/v1/audit/verify", key=key).body["events"] == 0

    def name() -> Any:
        return api.call("POST", "/v1/context/evaluate", asked(), key=key).body["policy_name"]

    assert name() == "default_deny"
    path = f"{TENANTS}/{tenant_id}"
    [listed] = [each for each in api.admin("GET", TENANTS) if each["tenant_id"] == tenant_id]
    assert listed == {
        "tenant_id": tenant_id,
        "name": "begins",
        "created_at": listed["created_at"],
        "require_agent_id": False,
        "pii_masking": False,
        "frozen_at": None,
        "active": True,
    }
    assert api.admin("PATCH", f"{path}/settings", {"require_agent_id": True})["require_agent_id"]
    assert name() == "agent_id_required"
    assert api.evaluate()["decision"] == "ALLOW", "another tenant's setting"
    assert api.admin("PATCH", f"{path}/settings", {})["require_agent_id"] is True
    api.admin("PATCH", f"{path}/settings", {"require_agent_id": False})
    assert name() == "default_deny"
    given = api.admin("POST", f"{path}/keys", {"name": "for them", "scope": "read"})
    names = {each["name"] for each in api.call("GET", "/v1/keys", key=given["key"]).body}
    assert names == {"first admin", "for them"}
    assert "for them" not in {each["name"] for each in api.admin("GET", "/v1/keys")}
    for _ in range(2):
        assert api.call("DELETE", path).body == {}
        assert api.call("GET", "/v1/keys", key=key).status == 403
    assert api.call("POST", f"{path}/keys", {"name": "k", "scope": "read"}).status == 409
    assert api.evaluate()["decision"] == "ALLOW", "another tenant"
    assert api.admin("POST", f"{path}/reactivate")["active"] is True
    assert api.call("GET", "/v1/keys", key=key).status == 200
    for method, each in (("DELETE", ""), ("POST", "/reactivate"), ("PATCH", "/settings")):
        body: dict[str, Any] | None = {} if method == "PATCH" else None
        assert api.call(method, f"{TENANTS}/none{each}", body).status == 404
    assert api.call("POST", f"{TENANTS}/none/keys", {"name": "k", "scope": "read"}).status == 404


@pytest.mark.deep(stands_in="test_a_new_tenant_has_a_key_settings_of_its_own_and_nothing_else")
def test_a_tenant_begins_with_its_key_and_nothing_of_others(either: ControlApi) -> None:
    tenant_id, key = made(either)
    assert tenant_id.startswith("ten_")
    assert [each["name"] for each in either.call("GET", "/v1/keys", key=key).body] == [
        "first admin"
    ]
    assert either.call("GET", "/v1/policies", key=key).body == []
    denied = either.call("POST", "/v1/context/evaluate", asked(), key=key).body
    assert denied["policy_name"] == "default_deny"
    listed = either.admin("GET", TENANTS)
    assert [each["name"] for each in listed] == ["acme", "default"]
    assert listed[0] == {
        "tenant_id": tenant_id,
        "name": "acme",
        "created_at": listed[0]["created_at"],
        "require_agent_id": False,
        "pii_masking": False,
        "frozen_at": None,
        "active": True,
    }
    verified = either.call("GET", "/v1/audit/verify", key=key).body
    assert (verified["valid"], verified["events"]) == (True, 1)


def test_a_taken_name_is_409_even_in_a_race(api_on_postgresql: ControlApi) -> None:
    answers: list[int] = []

    def create() -> None:
        answers.append(api_on_postgresql.call("POST", TENANTS, {"name": "raced for"}).status)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201] + [409] * 7
    names = [each["name"] for each in api_on_postgresql.admin("GET", TENANTS)]
    assert names.count("raced for") == 1


@pytest.mark.deep(stands_in="test_a_new_tenant_has_a_key_settings_of_its_own_and_nothing_else")
def test_a_setting_is_in_force_when_its_answer_leaves(either: ControlApi) -> None:
    tenant_id, key = made(either)
    path = f"{TENANTS}/{tenant_id}/settings"

    def name() -> Any:
        return either.call("POST", "/v1/context/evaluate", asked(), key=key).body["policy_name"]

    assert name() == "default_deny"
    assert either.admin("PATCH", path, {"require_agent_id": True}) == {
        "tenant_id": tenant_id,
        "require_agent_id": True,
        "pii_masking": False,
    }
    assert name() == "agent_id_required"
    assert either.evaluate()["decision"] == "ALLOW", "another tenant's setting"
    assert either.admin("PATCH", path, {})["require_agent_id"] is True
    assert either.admin("PATCH", path, {"require_agent_id": False})["require_agent_id"] is False
    assert name() == "default_deny"
    assert either.call("PATCH", f"{TENANTS}/none/settings", {}).status == 404
    assert either.call("PATCH", path, {"require_agent_id": 1}).status == 422


def test_the_global_flag_applies_whatever_the_tenant_sets(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_REQUIRE_AGENT_ID="1") as api:
        api.admin("PATCH", f"{TENANTS}/default/settings", {"require_agent_id": False})
        assert api.evaluate()["policy_name"] == "agent_id_required"


@pytest.mark.deep(stands_in="test_a_new_tenant_has_a_key_settings_of_its_own_and_nothing_else")
def test_deactivation_stops_keys_at_once_and_reactivation_restores_them(
    either: ControlApi,
) -> None:
    tenant_id, key = made(either)
    path = f"{TENANTS}/{tenant_id}"
    assert either.call("DELETE", path).body == {}
    refused = either.call("GET", "/v1/keys", key=key)
    assert refused.status == 403
    assert either.call("DELETE", path).body == {}
    fields = {"name": "k", "scope": "read"}
    assert either.call("POST", f"{path}/keys", fields).status == 409
    assert either.evaluate()["decision"] == "ALLOW", "another tenant"
    back = either.admin("POST", f"{path}/reactivate")
    assert back["active"] is True
    assert either.call("GET", "/v1/keys", key=key).status == 200
    for method, each in (("DELETE", ""), ("POST", "/reactivate")):
        assert either.call(method, f"{TENANTS}/none{each}").status == 404


@pytest.mark.deep(stands_in="test_a_new_tenant_has_a_key_settings_of_its_own_and_nothing_else")
def test_a_key_is_provisioned_without_the_tenant_s_credentials(either: ControlApi) -> None:
    tenant_id, _ = made(either)
    fields = {"name": "for them", "scope": "read", "expires_days": 7}
    answer = either.call("POST", f"{TENANTS}/{tenant_id}/keys", fields)
    assert answer.status == 201
    assert list(answer.body) == ["key_id", "name", "key", "scope", "expires_at", "created_at"]
    keys = either.call("GET", "/v1/keys", key=answer.body["key"]).body
    assert {each["name"] for each in keys} == {"first admin", "for them"}
    assert either.call("POST", f"{TENANTS}/none/keys", fields).status == 404
    assert "for them" not in {each["name"] for each in either.admin("GET", "/v1/keys")}


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_guardrails.py::test_a_new_tenant_s_files_that_break_its_own_guardrails_are_not_loaded"
)
def test_a_new_tenant_s_policy_files_are_loaded(fresh: ControlApi) -> None:
    tenant_id, key = made(fresh)
    folder = fresh.directory / "policies" / tenant_id / "demo"
    folder.mkdir(parents=True)
    (folder / "support.yaml").write_text(POLICIES)
    until("its policies", lambda: fresh.call("GET", "/v1/policies", key=key).body)


def test_another_process_learns_of_a_deactivation_within_a_second(tmp_path: Path) -> None:
    with running_control_api(tmp_path) as one:
        tenant_id, key = made(one)
        other = ControlApi(tmp_path, policies=None)
        other.start()
        try:
            assert other.call("GET", "/v1/keys", key=key).status == 200
            one.admin("DELETE", f"{TENANTS}/{tenant_id}")
            until(
                "the other process refuses the key",
                lambda: other.call("GET", "/v1/keys", key=key).status == 403,
            )
            one.admin("POST", f"{TENANTS}/{tenant_id}/reactivate")
            until(
                "the other process accepts the key",
                lambda: other.call("GET", "/v1/keys", key=key).status == 200,
            )
            # As of every other change.
            assert other.evaluate(session_id="s-1")["decision"] == "ALLOW"
            one.admin("POST", "/v1/sessions/revoke", {"agent_role": "support", "reason": "lost"})
            revoked = "session_revoked"
            until(
                "it knows the revocation",
                lambda: other.evaluate(session_id="s-1")["policy_name"] == revoked,
            )
            one.admin("POST", "/v1/freeze", {"reason": "an incident"})
            until("it knows the freeze", lambda: other.evaluate()["policy_name"] == "tenant_frozen")
            one.admin("DELETE", "/v1/freeze")
            until("it knows that it was lifted", lambda: other.evaluate()["decision"] == "ALLOW")
        finally:
            other.stop()
