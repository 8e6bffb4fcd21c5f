"""An agent's status, its fields, and what it may then do."""

from __future__ import annotations

import itertools
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from policies.definitions.model import AGENT_STATUSES
from tests.control_api.machines.conftest import Run
from tests.support.control_api import ControlApi

RUNS = itertools.count()
MOVES = {
    "draft": {"draft", "pending_approval", "deprecated"},
    "pending_approval": {"pending_approval", "approved", "draft", "deprecated"},
    "approved": {"approved", "suspended", "deprecated"},
    "suspended": {"suspended", "approved", "deprecated"},
    "deprecated": {"deprecated"},
}


class Agent(RuleBasedStateMachine):
    api: ClassVar[ControlApi]

    def __init__(self) -> None:
        super().__init__()
        self.agent_id = f"agent-{next(RUNS)}"
        self.path = f"/v1/agents/{self.agent_id}"
        self.status: str | None = None
        self.roles = ["support"]
        self.decided = self.denied = 0

    @rule()
    def register(self) -> None:
        body = {"agent_id": self.agent_id, "agent_role": "support"}
        answer = self.api.call("POST", "/v1/agents", body)
        assert answer.status == (201 if self.status is None else 409)
        self.status = self.status or "draft"

    @rule(status=st.sampled_from(AGENT_STATUSES))
    def move(self, status: str) -> None:
        answer = self.api.call("PATCH", f"{self.path}/status", {"status": status})
        if self.status is None:
            assert answer.status == 404
        elif status in MOVES[self.status]:
            assert (answer.status, answer.body["status"]) == (200, status)
            self.status = status
        else:
            assert answer.status == 409

    @rule(roles=st.sampled_from([["support"], ["other"], ["support", "other"], []]))
    def permit(self, roles: list[str]) -> None:
        answer = self.api.call("PUT", self.path, {"permitted_roles": roles})
        assert answer.status == (404 if self.status is None else 200)
        if self.status is not None:
            self.roles = roles or ["support"]

    @rule()
    def evaluate(self) -> None:
        answer = self.api.evaluate(agent_id=self.agent_id)
        if self.status is None:
            expected = "agent_not_registered"
        elif self.status != "approved":
            expected = "agent_not_approved"
        else:
            expected = "support-reads" if "support" in self.roles else "role_not_permitted"
        assert answer["policy_name"] == expected
        assert (answer["decision"] == "ALLOW") == (expected == "support-reads")
        self.decided += 1
        self.denied += answer["decision"] == "DENY"

    @invariant()
    def it_is_shown_as_it_is(self) -> None:
        answer = self.api.call("GET", self.path)
        if self.status is None:
            assert answer.status == 404
            return
        shown = answer.body
        assert (shown["status"], shown["permitted_roles"]) == (self.status, self.roles)
        activity = shown["activity"]
        assert (activity["total"], activity["denied"]) == (self.decided, self.denied)


def test_any_sequence_of_calls_changes_an_agent_as_the_model_predicts(run: Run) -> None:
    run(Agent)
    agent = Agent()  # through every status, whatever was drawn
    agent.register()
    for status in ("pending_approval", "approved", "suspended", "approved", "deprecated"):
        agent.evaluate()
        agent.move(status)
        agent.it_is_shown_as_it_is()
    agent.evaluate()
