"""An incident: an agent is suspended, a user's sessions are revoked, the tenant is frozen. Each
measure takes effect in a connected sidecar within a second, and so does lifting it."""

from __future__ import annotations

import pytest

from tests.stories.test_management_reaches_sidecars import soon
from tests.support.stack import Stack, call
from tests.support.waiting import AWAY, until

FREEZE = "/v1/freeze"


def both(stack: Stack, name: str, **asked: object) -> None:
    """The sidecar and the control API give the same decision."""
    soon(stack, (200, name), **asked)
    status, answer = call(
        stack.control.port,
        "POST",
        "/v1/context/evaluate",
        stack.ask(**asked),
        key=stack.agent_key,
    )
    assert status == 200
    assert (answer["policy_name"] if answer["decision"] == "DENY" else "") == name


def test_controls_for_an_incident_reach_a_sidecar_and_lift_again(either_way: Stack) -> None:
    stack = either_way
    both(stack, "", session_id="s-ann")
    assert stack.evaluate(session_id="s-bob", user_id="bob")[1]["decision"] == "ALLOW"

    status = f"/v1/agents/{stack.agent_id}/status"
    stack.admin("PATCH", status, {"status": "suspended"})
    both(stack, "agent_not_approved")
    stack.admin("PATCH", status, {"status": "approved"})
    both(stack, "")

    body = {"user_id": "ann", "reason": "account taken over"}
    assert stack.admin("POST", "/v1/sessions/revoke", body) == {"revoked": 1}
    both(stack, "session_revoked", session_id="s-ann")
    both(stack, "", session_id="s-bob", user_id="bob")

    stack.admin("POST", FREEZE, {"reason": "leaked key"})
    both(stack, "tenant_frozen")
    both(stack, "tenant_frozen", session_id="s-new")
    stack.admin("DELETE", FREEZE)
    both(stack, "")
    both(stack, "", session_id="s-new")
    until("all is in the log", lambda: stack.verify()["events"] > 10, despite=AWAY)
    report = stack.verify()
    assert report["valid"], report
    names = {event["policy_name"] for event in stack.events()}
    assert names >= {"agent_not_approved", "session_revoked", "tenant_frozen"}


@pytest.mark.deep(
    stands_in="tests/sidecar/test_freeze.py::test_a_freeze_survives_a_restart_without_the_control_api"
)
def test_a_freeze_outlives_the_control_api_and_restarts(either_way: Stack) -> None:
    stack = either_way
    assert stack.evaluate()[1]["decision"] == "ALLOW"
    stack.admin("POST", FREEZE, {"reason": "leaked key"})
    soon(stack, (200, "tenant_frozen"))
    stack.control.kill()
    stack.sidecar.kill()
    stack.sidecar.start()
    assert stack.evaluate()[1]["policy_name"] == "tenant_frozen"
    stack.control.start()
    assert stack.admin("GET", FREEZE)["frozen"]
    both(stack, "tenant_frozen")
    stack.admin("DELETE", FREEZE)
    until("it is lifted", lambda: stack.evaluate()[1]["decision"] == "ALLOW", despite=AWAY)
