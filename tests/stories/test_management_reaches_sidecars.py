"""An operator's change is soon in force in a connected sidecar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.stack import Stack, call
from tests.support.waiting import AWAY, until


def soon(stack: Stack, expected: tuple[int, str], **asked: Any) -> None:
    """The sidecar gives this decision soon: `tests/benchmarks` measures how soon."""

    def answered() -> bool:
        status, answer = stack.evaluate(**asked)
        name = answer.get("policy_name", "")
        return (status, name if answer.get("decision") == "DENY" else "") == expected

    until(f"{expected} is answered", answered, despite=AWAY)


def agent_key_id(stack: Stack) -> str:
    (row,) = [row for row in stack.admin("GET", "/v1/keys") if row["name"] == "agent"]
    key_id: str = row["key_id"]
    return key_id


def superadmin(stack: Stack, method: str, path: str, body: object = None) -> Any:
    first = json.loads((stack.directory / "data" / "first-start.json").read_text())
    status, answer = call(stack.control.port, method, path, body, key=first["superadmin_key"])
    assert status < 300, answer
    return answer


def test_changes_of_policies_agents_and_keys_reach_a_sidecar(either_way: Stack) -> None:
    stack = either_way
    assert stack.evaluate()[1]["decision"] == "ALLOW"
    (policy,) = stack.admin("GET", "/v1/policies")
    path = f"/v1/policies/{policy['policy_id']}"
    stack.admin("DELETE", path)
    soon(stack, (200, "default_deny"))
    stack.admin("POST", f"{path}/restore")
    soon(stack, (200, ""))
    key_id = agent_key_id(stack)
    stack.admin("PATCH", f"/v1/keys/{key_id}/binding", {"bound_agent_id": "another"})
    soon(stack, (200, "key_agent_binding"))
    stack.admin("PATCH", f"/v1/keys/{key_id}/binding", {"bound_agent_id": None})
    soon(stack, (200, ""))
    stack.admin("PUT", f"/v1/agents/{stack.agent_id}", {"permitted_roles": ["other"]})
    soon(stack, (200, "role_not_permitted"))
    stack.admin("PUT", f"/v1/agents/{stack.agent_id}", {"permitted_roles": None})
    soon(stack, (200, ""))
    new = stack.admin("POST", f"/v1/keys/{key_id}/rotate")
    soon(stack, (403, ""))
    stack.agent_key = new["key"]
    soon(stack, (200, ""))
    stack.admin("DELETE", f"/v1/keys/{new['key_id']}")
    soon(stack, (403, ""))


@pytest.mark.deep(
    stands_in="tests/sidecar/test_sessions.py::test_known_sessions_survive_a_restart_without_the_control_api"
)
def test_a_revoked_session_stays_so_without_the_control_api_and_over_a_restart(
    either_way: Stack,
) -> None:
    stack = either_way
    for session in ("s1", "s2"):
        assert stack.evaluate(session_id=session)[1]["decision"] == "ALLOW"
    stack.admin("DELETE", "/v1/sessions/s1")
    soon(stack, (200, "session_revoked"), session_id="s1")
    stack.control.kill()
    assert stack.evaluate(session_id="s1")[1]["policy_name"] == "session_revoked"
    stack.sidecar.kill()
    stack.sidecar.start()
    assert stack.evaluate(session_id="s1")[1]["policy_name"] == "session_revoked"
    assert stack.evaluate(session_id="s2")[1]["decision"] == "ALLOW"
    stack.control.start()


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_redis_loop.py::test_a_deactivated_tenant_s_sidecar_denies_until_it_is_active_again"
)
def test_a_sidecar_denies_while_its_tenant_is_deactivated(either_way: Stack) -> None:
    stack = either_way
    assert stack.evaluate()[1]["decision"] == "ALLOW"
    superadmin(stack, "DELETE", "/v1/admin/tenants/default")
    soon(stack, (200, "policy_set_stale"))
    assert "deactivated" in stack.evaluate()[1]["reason"]
    superadmin(stack, "POST", "/v1/admin/tenants/default/reactivate")
    until("it goes on", lambda: stack.evaluate()[1]["decision"] == "ALLOW", despite=AWAY)
    path = "/v1/admin/tenants/default/settings"
    superadmin(stack, "PATCH", path, {"require_agent_id": True})
    soon(stack, (200, "agent_id_required"), agent_id=None)
    until("all is in the log", lambda: stack.verify()["events"] > 3, despite=AWAY)
    assert stack.verify()["valid"]
