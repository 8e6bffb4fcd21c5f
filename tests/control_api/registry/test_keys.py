"""API keys: shown once, listed without secrets, dead at once when revoked."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from policies.ground.canonical import micros, rfc3339
from policies.ground.keys import well_formed
from tests.support.control_api import ControlApi, asked

DAY = 86_400


def test_a_key_is_shown_once_and_never_listed(api: ControlApi) -> None:
    answer = api.call("POST", "/v1/keys", {"name": "shown once", "scope": "read"})
    made = answer.body
    assert answer.status == 201
    assert list(made) == ["key_id", "name", "key", "scope", "expires_at", "created_at"]
    assert well_formed(made["key"])
    assert made["key_id"].startswith("key_")
    listed = api.call("GET", "/v1/keys")
    assert made["key"] not in listed.raw.decode()
    (row,) = [row for row in listed.body if row["key_id"] == made["key_id"]]
    assert list(row) == [
        "key_id",
        "name",
        "scope",
        "bound_agent_id",
        "permitted_roles",
        "expires_at",
        "created_at",
        "agent_ids",
        "sidecar_ids",
    ]


def test_a_key_is_in_the_log_and_its_secret_in_no_file(api: ControlApi) -> None:
    made = api.admin("POST", "/v1/keys", {"name": "traced", "scope": "read"})
    renewed = api.admin("POST", f"/v1/keys/{made['key_id']}/rotate")
    api.admin("DELETE", f"/v1/keys/{renewed['key_id']}")
    changes = api.admin("GET", "/v1/audit/changes?object_type=key")
    ids = (made["key_id"], renewed["key_id"])
    found = [(each["action"], each["object_id"]) for each in changes if each["object_id"] in ids]
    assert found == [("revoked", ids[1]), ("rotated", ids[0]), ("created", ids[0])]
    for path in (api.directory / "data").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert made["key"].encode() not in content, path.name
        assert renewed["key"].encode() not in content, path.name


@pytest.mark.deep(stands_in="test_a_key_is_in_the_log_and_its_secret_in_no_file")
def test_no_file_of_the_data_directory_holds_the_secret(fresh: ControlApi) -> None:
    key = fresh.new_key("read")
    fresh.stop()
    for path in (fresh.directory / "data").rglob("*"):
        assert path.is_dir() or key.encode() not in path.read_bytes(), path.name
    fresh.start()


def test_an_expired_or_revoked_key_opens_nothing_and_can_t_be_rotated(
    fresh: ControlApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}
    body = {"name": "é", "scope": "read", "bound_agent_id": "agt_k"}
    for fields, days in (({}, 365), ({"expires_days": 3650}, 3650), ({"expires_days": 1}, 1)):
        made = fresh.admin("POST", "/v1/keys", {**body, **fields})
        lasts = micros(made["expires_at"]) - micros(made["created_at"])
        assert lasts == days * DAY * 1_000_000
    path = f"/v1/keys/{made['key_id']}/rotate"
    fresh.time.ahead = DAY - 60
    assert fresh.call("GET", "/v1/keys", key=made["key"]).status == 200
    fresh.time.ahead = DAY + 1
    assert fresh.call("GET", "/v1/keys", key=made["key"]).status == 403
    answer = fresh.call("POST", path)
    assert (answer.status, "expired" in answer.body["message"]) == (409, True)
    fresh.time.ahead = 0
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    # The log says whose key it was, once an hour.
    for repeat, count in ((3600.0, 1), (3600.0, 1), (0.0, 2)):
        monkeypatch.setattr("control_api.auth.REPEAT_SECONDS", repeat)
        assert fresh.call("GET", "/v1/keys", key=made["key"]).status == 403
        assert caplog.text.count("as the key is revoked") == count
    name = f"`{made['key_id']}` ('\\xe9', scope read, agent 'agt_k')"
    assert caplog.text.count(f"a call with key {name} of tenant `default` was refused") == 2
    assert made["key"] not in caplog.text
    answer = fresh.call("POST", path)
    assert (answer.status, "revoked" in answer.body["message"]) == (409, True)
    assert fresh.call("POST", "/v1/keys/key_none/rotate").status == 404


@pytest.mark.deep(stands_in="test_an_expired_or_revoked_key_opens_nothing_and_can_t_be_rotated")
@pytest.mark.parametrize(
    ("fields", "days"),
    [({}, 365), ({"expires_days": 1}, 1), ({"expires_days": 3650}, 3650)],
)
def test_a_key_expires_after_its_days(fresh: ControlApi, fields: Any, days: int) -> None:
    key = fresh.new_key("read", **fields)
    fresh.time.ahead = days * DAY - 60
    assert fresh.call("GET", "/v1/keys", key=key).status == 200
    fresh.time.ahead = days * DAY + 1
    assert fresh.call("GET", "/v1/keys", key=key).status == 403


def test_a_key_with_null_days_never_expires(api: ControlApi) -> None:
    body = {"name": "forever", "scope": "read", "expires_days": None}
    assert api.admin("POST", "/v1/keys", body)["expires_at"] is None


@pytest.mark.parametrize("days", [0, -1, 3651, 1.5, "30", True])
def test_days_out_of_bounds_are_422(api: ControlApi, days: Any) -> None:
    body = {"name": "n", "scope": "read", "expires_days": days}
    answer = api.call("POST", "/v1/keys", body)
    assert answer.status == 422
    assert answer.body["details"].startswith("expires_days: ")


@pytest.mark.parametrize("scope", ["superadmin", "ADMIN", "", None, "write"])
def test_no_other_scope_can_be_made(api: ControlApi, scope: Any) -> None:
    assert api.call("POST", "/v1/keys", {"name": "n", "scope": scope}).status == 422


def test_a_second_revocation_is_404_and_a_revoked_key_is_not_listed(api: ControlApi) -> None:
    made = api.admin("POST", "/v1/keys", {"name": "gone", "scope": "read"})
    path = f"/v1/keys/{made['key_id']}"
    assert api.call("DELETE", path).body == {}
    assert api.call("DELETE", path).status == 404
    assert made["key_id"] not in [row["key_id"] for row in api.admin("GET", "/v1/keys")]


@pytest.mark.deep(stands_in="test_a_key_is_in_the_log_and_its_secret_in_no_file")
def test_a_change_is_in_the_log_without_the_secret(fresh: ControlApi) -> None:
    before = fresh.verified()
    made = fresh.admin("POST", "/v1/keys", {"name": "traced", "scope": "read"})
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    after = fresh.verified()
    assert after["total"] == before["total"] + 2
    assert after["events"] == before["events"]
    with sqlite3.connect(fresh.directory / "data" / "sluice.db") as database:
        rows = database.execute("SELECT entry FROM log_entries WHERE kind = 'change'").fetchall()
    text = b"".join(row[0] for row in rows)
    assert b"key.created" in text
    assert b"key.revoked" in text
    assert made["key"].encode() not in text


def test_pages_show_every_key_once_newest_first(tenant: ControlApi) -> None:
    made = [
        tenant.admin("POST", "/v1/keys", {"name": f"n{number}", "scope": "read"})["key_id"]
        for number in range(7)
    ]
    seen = []
    for rows in tenant.pages("/v1/keys?limit=3"):
        assert len(rows) <= 3
        seen += [row["key_id"] for row in rows]
        # Written between two pages: it sorts before the rows seen, and shifts nothing.
        tenant.admin("POST", "/v1/keys", {"name": "in between", "scope": "read"})
    assert seen[:7] == made[::-1]
    assert len(seen) == 8  # and the first admin's


def policy_of(key: str, api: ControlApi, **changed: Any) -> str:
    """The policy name in the response to an evaluation with this key; empty on an ALLOW."""
    answer = api.call("POST", "/v1/context/evaluate", asked(**changed), key=key)
    assert answer.status == 200, answer.raw
    return "" if answer.body["decision"] == "ALLOW" else str(answer.body["policy_name"])


def test_a_binding_s_two_fields_are_independent(either_tenant: ControlApi) -> None:
    either_tenant.approved("a1")
    made = either_tenant.admin("POST", "/v1/keys", {"name": "bound", "scope": "evaluate"})
    path, key = f"/v1/keys/{made['key_id']}/binding", made["key"]

    def binding() -> tuple[Any, Any]:
        (row,) = [row for row in either_tenant.admin("GET", "/v1/keys") if row["name"] == "bound"]
        return row["bound_agent_id"], row["permitted_roles"]

    assert either_tenant.admin("PATCH", path, {"bound_agent_id": "a1"}) == {"status": "ok"}
    assert binding() == ("a1", [])
    assert policy_of(key, either_tenant) == "key_agent_binding"
    assert policy_of(key, either_tenant, agent_id="a1") == ""
    either_tenant.admin("PATCH", path, {"permitted_roles": ["other"]})
    assert binding() == ("a1", ["other"])
    assert policy_of(key, either_tenant, agent_id="a1") == "key_role_restriction"
    either_tenant.admin("PATCH", path, {"bound_agent_id": None})
    assert binding() == (None, ["other"])
    entries = either_tenant.verified()["total"]
    assert either_tenant.admin("PATCH", path, {}) == {"status": "ok"}
    assert either_tenant.verified()["total"] == entries
    either_tenant.admin("PATCH", path, {"permitted_roles": None})
    assert binding() == (None, [])
    assert policy_of(key, either_tenant) == ""
    either_tenant.admin("DELETE", f"/v1/keys/{made['key_id']}")
    assert either_tenant.call("PATCH", path, {}).status == 404


def test_a_rotation_leaves_one_key_with_all_properties_of_the_old_one(
    either_tenant: ControlApi,
) -> None:
    fields = {"name": "rotated", "scope": "evaluate", "expires_days": 30}
    old = either_tenant.admin("POST", "/v1/keys", fields)
    either_tenant.approved("a1", bound_key_id=old["key_id"])
    binding = {"bound_agent_id": "a1", "permitted_roles": ["support"]}
    either_tenant.admin("PATCH", f"/v1/keys/{old['key_id']}/binding", binding)
    assert policy_of(old["key"], either_tenant, agent_id="a1") == ""
    answer = either_tenant.call("POST", f"/v1/keys/{old['key_id']}/rotate")
    new = answer.body
    assert answer.status == 201
    assert list(new) == list(old)
    assert new["key_id"] != old["key_id"]
    assert new["key"] != old["key"]
    for name in ("name", "scope", "expires_at"):
        assert new[name] == old[name]
    evaluation = "/v1/context/evaluate"
    assert (
        either_tenant.call("POST", evaluation, asked(agent_id="a1"), key=old["key"]).status == 403
    )
    assert policy_of(new["key"], either_tenant, agent_id="a1") == ""
    assert policy_of(new["key"], either_tenant) == "key_agent_binding"
    assert either_tenant.admin("GET", "/v1/agents/a1")["bound_key_id"] == new["key_id"]
    (row,) = [row for row in either_tenant.admin("GET", "/v1/keys") if row["name"] == "rotated"]
    assert (row["key_id"], row["permitted_roles"]) == (new["key_id"], ["support"])
    assert either_tenant.verified()["valid"]


@pytest.mark.deep(stands_in="test_an_expired_or_revoked_key_opens_nothing_and_can_t_be_rotated")
def test_a_dead_key_can_t_be_rotated(fresh: ControlApi) -> None:
    made = fresh.admin("POST", "/v1/keys", {"name": "k", "scope": "read", "expires_days": 1})
    path = f"/v1/keys/{made['key_id']}/rotate"
    fresh.time.ahead = DAY + 1
    assert "expired" in fresh.call("POST", path).body["message"]
    fresh.time.ahead = 0
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    answer = fresh.call("POST", path)
    assert answer.status == 409
    assert "revoked" in answer.body["message"]
    assert fresh.call("POST", "/v1/keys/key_none/rotate").status == 404


def test_a_caller_can_rotate_its_own_key(tenant: ControlApi) -> None:
    (row,) = [row for row in tenant.admin("GET", "/v1/keys") if row["scope"] == "admin"]
    new = tenant.admin("POST", f"/v1/keys/{row['key_id']}/rotate")
    assert tenant.call("GET", "/v1/keys").status == 403
    assert tenant.call("GET", "/v1/keys", key=new["key"]).status == 200


def test_keys_that_end_soon_are_found(fresh: ControlApi) -> None:
    for days in (3, 30, None):
        body = {"name": f"{days} days", "scope": "evaluate", "expires_days": days}
        fresh.admin("POST", "/v1/keys", body)
    by = rfc3339(fresh.time.now() + 7 * DAY * 1_000_000)
    (found,) = fresh.admin("GET", f"/v1/keys?expires_before={by}")
    assert found["name"] == "3 days"
    assert fresh.admin("GET", f"/v1/keys?enrolled=true&expires_before={by}") == []
    assert fresh.call("GET", "/v1/keys?expires_before=soon").status == 422
