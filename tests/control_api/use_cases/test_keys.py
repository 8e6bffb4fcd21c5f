"""API keys: made once, listed without secrets, dead at once when revoked."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from policies.ground.keys import well_formed
from tests.control_api.centre import Centre

DAY = 86_400


def test_a_key_is_shown_once_and_never_listed(centre: Centre) -> None:
    answer = centre.call("POST", "/v1/keys", {"name": "shown once", "scope": "read"})
    made = answer.body
    assert answer.status == 201
    assert list(made) == ["key_id", "name", "key", "scope", "expires_at", "created_at"]
    assert well_formed(made["key"])
    assert made["key_id"].startswith("key_")
    listed = centre.call("GET", "/v1/keys")
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
    ]


def test_the_secret_is_nowhere_in_the_data_directory(fresh: Centre) -> None:
    key = fresh.new_key("read")
    fresh.stop()
    for path in (fresh.directory / "data").iterdir():
        assert key.encode() not in path.read_bytes(), path.name
    fresh.start()


@pytest.mark.parametrize(
    ("fields", "days"),
    [({}, 365), ({"expires_days": 1}, 1), ({"expires_days": 3650}, 3650)],
)
def test_a_key_expires_after_its_days(fresh: Centre, fields: Any, days: int) -> None:
    key = fresh.new_key("read", **fields)
    fresh.time.ahead = days * DAY - 60
    assert fresh.call("GET", "/v1/keys", key=key).status == 200
    fresh.time.ahead = days * DAY + 1
    assert fresh.call("GET", "/v1/keys", key=key).status == 403


def test_a_key_with_null_days_never_expires(centre: Centre) -> None:
    body = {"name": "for ever", "scope": "read", "expires_days": None}
    assert centre.admin("POST", "/v1/keys", body)["expires_at"] is None


@pytest.mark.parametrize("days", [0, -1, 3651, 1.5, "30", True])
def test_days_out_of_bounds_are_422(centre: Centre, days: Any) -> None:
    body = {"name": "n", "scope": "read", "expires_days": days}
    answer = centre.call("POST", "/v1/keys", body)
    assert answer.status == 422
    assert answer.body["details"].startswith("expires_days: ")


@pytest.mark.parametrize("scope", ["superadmin", "ADMIN", "", None, "write"])
def test_no_other_scope_can_be_made(centre: Centre, scope: Any) -> None:
    assert centre.call("POST", "/v1/keys", {"name": "n", "scope": scope}).status == 422


def test_a_second_revocation_is_404_and_a_revoked_key_is_not_listed(centre: Centre) -> None:
    made = centre.admin("POST", "/v1/keys", {"name": "gone", "scope": "read"})
    path = f"/v1/keys/{made['key_id']}"
    assert centre.call("DELETE", path).body == {}
    assert centre.call("DELETE", path).status == 404
    assert made["key_id"] not in [row["key_id"] for row in centre.admin("GET", "/v1/keys")]


def test_a_change_is_in_the_log_without_the_secret(fresh: Centre) -> None:
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


def test_pages_show_every_key_once_newest_first(fresh: Centre) -> None:
    made = [
        fresh.admin("POST", "/v1/keys", {"name": f"n{number}", "scope": "read"})["key_id"]
        for number in range(7)
    ]
    seen = []
    for rows in fresh.pages("/v1/keys?limit=3"):
        assert len(rows) <= 3
        seen += [row["key_id"] for row in rows]
        # Written between two pages: it stands before what was seen, and moves nothing.
        fresh.admin("POST", "/v1/keys", {"name": "in between", "scope": "read"})
    assert seen[:7] == made[::-1]
    assert len(seen) == 8  # and the first admin's
