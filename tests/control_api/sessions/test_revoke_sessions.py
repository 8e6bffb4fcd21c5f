"""Sessions revoked by role, agent and user: all that match, for good, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from control_api.sessions import operations as module
from control_api.sessions.operations import BATCH
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

PATH = "/v1/sessions/revoke"
WHY = "leaked key"


def revoke(api: ControlApi, **wanted: Any) -> int:
    count: int = api.admin("POST", PATH, {"reason": WHY, **wanted})["revoked"]
    return count


def create_agents_and_keys(api: ControlApi) -> None:
    """Six sessions, of two agents and no agent, of two users and two roles."""
    for agent_id in ("a1", "a2"):
        api.approved(agent_id)
        for user in ("ann", "bob"):
            api.evaluate(session_id=f"{agent_id}-{user}", agent_id=agent_id, user_id=user)
    api.evaluate(session_id="alone", user_id="ann")
    api.evaluate(session_id="other", user_id="ann", agent_role="other")


def revoked(api: ControlApi) -> set[str]:
    return {row["session_id"] for row in api.admin("GET", "/v1/sessions?status=revoked")}


def test_sessions_that_match_every_filter_are_revoked_batch_after_batch(
    tenant: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    tenant.approved("a1")
    for name, user, fields in (
        ("one", "ann", {"agent_id": "a1"}),
        ("two", "bob", {"agent_id": "a1"}),
        ("three", "ann", {}),
        ("four", "ann", {"agent_role": "other"}),
        ("five", "ann", {}),
    ):
        tenant.evaluate(session_id=name, user_id=user, **fields)
    for wanted, count in (
        ({"agent_id": "a1"}, 2),
        ({"user_id": "ann"}, 4),
        ({"agent_role": "support", "user_id": "ann"}, 3),
        ({"agent_role": "support", "user_id": "ann", "agent_id": "a1"}, 1),
        ({"agent_role": "Support"}, 0),
    ):
        assert revoke(tenant, **wanted, dry_run=True) == count, wanted
    assert revoked(tenant) == set()
    assert revoke(tenant, agent_role="support", user_id="ann") == 3
    assert revoked(tenant) == {"one", "three", "five"}
    for name, agent_id in (("one", "a1"), ("three", None)):
        answer = tenant.evaluate(session_id=name, agent_id=agent_id)
        assert answer["policy_name"] == "session_revoked"
    assert tenant.evaluate(session_id="two", agent_id="a1", user_id="bob")["decision"] == "ALLOW"
    # Each is in the log, and keeps its first reason.
    changes = tenant.admin("GET", "/v1/audit/changes?object_type=session")
    assert sorted(each["object_id"] for each in changes) == ["five", "one", "three"]
    again = {"agent_role": "support", "user_id": "ann", "reason": "another"}
    assert tenant.admin("POST", PATH, again)["revoked"] == 0
    assert tenant.admin("GET", "/v1/sessions/one")["revocation_reason"] == WHY
    assert len(tenant.admin("GET", "/v1/audit/changes?object_type=session")) == 3


@pytest.mark.deep(stands_in="test_sessions_that_match_every_filter_are_revoked_batch_after_batch")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"agent_id": "a1"}, {"a1-ann", "a1-bob"}),
        ({"user_id": "ann"}, {"a1-ann", "a2-ann", "alone", "other"}),
        ({"agent_role": "support"}, {"a1-ann", "a1-bob", "a2-ann", "a2-bob", "alone"}),
        ({"agent_role": "support", "user_id": "bob"}, {"a1-bob", "a2-bob"}),
        ({"agent_role": "support", "user_id": "bob", "agent_id": "a2"}, {"a2-bob"}),
        ({"agent_id": "a1", "user_id": None, "agent_role": None}, {"a1-ann", "a1-bob"}),
        ({"agent_id": "nobody"}, set()),
        ({"agent_role": "Support"}, set()),
    ],
)
def test_sessions_that_match_all_filters_are_revoked(
    fresh: ControlApi, wanted: dict[str, Any], expected: set[str]
) -> None:
    create_agents_and_keys(fresh)
    assert revoke(fresh, **wanted, dry_run=True) == len(expected)
    assert revoked(fresh) == set()
    answer = fresh.call("POST", PATH, {"reason": WHY, **wanted})
    assert (answer.status, answer.body) == (200, {"revoked": len(expected)})
    assert answer.headers["X-Sluice-Revision"]
    assert revoked(fresh) == expected
    assert revoke(fresh, **wanted) == 0


@pytest.mark.deep(stands_in="test_sessions_that_match_every_filter_are_revoked_batch_after_batch")
def test_a_revocation_is_in_force_before_its_answer_and_permanent(either: ControlApi) -> None:
    create_agents_and_keys(either)
    entries = either.verified()["total"]
    assert revoke(either, user_id="ann") == 4
    assert either.verified()["total"] == entries + 4
    for restarted in (False, True):
        if restarted:
            either.restart()
        for agent_id in ("a1", "a2"):
            call = {"agent_id": agent_id, "session_id": f"{agent_id}-ann", "user_id": "ann"}
            assert either.evaluate(**call)["policy_name"] == "session_revoked"
            call = {"agent_id": agent_id, "session_id": f"{agent_id}-bob", "user_id": "bob"}
            assert either.evaluate(**call)["decision"] == "ALLOW"
    shown = either.admin("GET", "/v1/sessions/alone")
    assert (shown["status"], shown["revocation_reason"]) == ("revoked", WHY)
    assert either.evaluate(session_id="new", user_id="ann")["decision"] == "ALLOW"


@pytest.mark.deep(stands_in="test_sessions_that_match_every_filter_are_revoked_batch_after_batch")
def test_an_earlier_revocation_keeps_its_reason(fresh: ControlApi) -> None:
    fresh.evaluate(session_id="s1")
    fresh.admin("DELETE", "/v1/sessions/s1?reason=first")
    assert revoke(fresh, agent_role="support") == 0
    assert fresh.admin("GET", "/v1/sessions/s1")["revocation_reason"] == "first"


@pytest.mark.deep(stands_in="test_sessions_that_match_every_filter_are_revoked_batch_after_batch")
def test_more_sessions_than_one_transaction_takes_are_all_revoked(either: ControlApi) -> None:
    count = 2 * BATCH + 1
    for at in range(0, count, 100):
        items = [
            {
                "agent_role": "support",
                "user_id": "ann",
                "source_id": "handbook",
                "sensitivity_level": "low",
                "session_id": f"s{number:04}",
            }
            for number in range(at, min(at + 100, count))
        ]
        either.admin("POST", "/v1/context/evaluate/batch", {"items": items})
    either.evaluate(session_id="another's", user_id="bob")
    assert revoke(either, user_id="ann") == count
    pages = either.pages("/v1/sessions?status=revoked&limit=1000")
    assert sum(len(page) for page in pages) == count
    assert either.evaluate(session_id="another's", user_id="bob")["decision"] == "ALLOW"
    for number in (0, BATCH - 1, BATCH, count - 1):
        answer = either.evaluate(session_id=f"s{number:04}")
        assert answer["policy_name"] == "session_revoked"
    either.verified()


@pytest.mark.deep(
    stands_in="tests/control_api/tenants/test_tenants.py::test_another_process_learns_of_a_deactivation_within_a_second"
)
def test_a_revocation_is_in_force_at_another_replica_within_a_second(either: ControlApi) -> None:
    url = either.environ.get("SLUICE_DATABASE_URL")
    with running_control_api(either.directory, policies=None, database_url=url) as other:
        assert other.evaluate(session_id="s1", user_id="ann")["decision"] == "ALLOW"
        assert revoke(either, user_id="ann") == 1
        until(
            "the other process knows of the revocation",
            lambda: other.evaluate(session_id="s1")["policy_name"] == "session_revoked",
        )


def test_a_masked_user_s_sessions_are_found_by_the_whole_id(api: ControlApi) -> None:
    path = "/v1/admin/tenants/default/settings"
    api.admin("PATCH", path, {"pii_masking": True})
    api.evaluate(session_id="s-masked", user_id="ann@example.com")
    api.admin("PATCH", path, {"pii_masking": False})
    assert revoke(api, user_id="ann@example.com") == 1
    assert api.admin("GET", "/v1/sessions/s-masked")["status"] == "revoked"


@pytest.mark.deep(stands_in="test_a_masked_user_s_sessions_are_found_by_the_whole_id")
@pytest.mark.parametrize("masking", ["0", "1"])
def test_a_user_whose_id_was_masked_is_found(tmp_path: Any, masking: str) -> None:
    with running_control_api(tmp_path, SLUICE_PII_MASKING=masking) as api:
        api.evaluate(session_id="s1", user_id="ann@example.com")
        api.evaluate(session_id="s2", user_id="u-1001")
        assert revoke(api, user_id="ann@example.com") == 1
        assert revoked(api) == {"s1"}


def test_sessions_of_another_tenant_are_not_revoked(api: ControlApi) -> None:
    made = api.call("POST", "/v1/admin/tenants", {"name": "other"}).body
    api.evaluate(session_id="s1")
    body = {"agent_role": "support", "reason": WHY}
    answer = api.call("POST", PATH, body, key=made["admin_key"])
    assert answer.body == {"revoked": 0}
    assert api.evaluate(session_id="s1")["decision"] == "ALLOW"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reason": WHY}, "agent_role, agent_id, user_id"),
        ({"reason": WHY, "agent_id": None}, "agent_role, agent_id, user_id"),
        ({"agent_id": "a"}, "reason"),
        ({"agent_id": "a", "reason": None}, "reason"),
        ({"agent_id": "", "reason": WHY}, "agent_id"),
        ({"agent_id": "a", "reason": WHY, "session_id": "s"}, "session_id"),
    ],
)
def test_a_revocation_without_a_filter_is_422(
    api: ControlApi, body: dict[str, Any], field: str
) -> None:
    answer = api.call("POST", PATH, body)
    assert answer.status == 422
    assert answer.body["details"].startswith(field)


def test_a_session_whose_id_is_revoke_is_shown_and_revoked(api: ControlApi) -> None:
    api.evaluate(session_id="revoke")
    assert api.admin("GET", "/v1/sessions/revoke")["status"] == "active"
    assert api.admin("DELETE", "/v1/sessions/revoke")["status"] == "revoked"
    refused = api.call("PUT", "/v1/sessions/revoke", {})
    assert refused.status == 405
    assert refused.headers["Allow"] == "DELETE, GET, HEAD, POST"
