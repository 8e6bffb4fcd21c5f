"""The policy lifecycle: names, versions, deletion, history, and what is decided."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.control_api.machines.conftest import Run
from tests.support.control_api import ControlApi

RUNS = itertools.count()
SOURCES = st.sampled_from(["a", "b"])
SLOTS = st.integers(0, 3)


class Policies(RuleBasedStateMachine):
    """`model` holds what each policy made here should be; None for one that was deleted."""

    api: ClassVar[ControlApi]

    def __init__(self) -> None:
        super().__init__()
        self.role = f"role-{next(RUNS)}"
        self.made: list[str] = []
        self.model: dict[str, dict[str, Any] | None] = {}
        self.versions: dict[str, int] = {}

    def body(self, name: str, source: str) -> dict[str, Any]:
        return {
            "name": f"{self.role} {name}",
            "agent_role": self.role,
            "allowed_sources": [source],
            "denied_sources": [],
            "max_sensitivity": "low",
        }

    def taken(self, name: str, but: str = "") -> bool:
        full = f"{self.role} {name}"
        return any(
            body is not None and body["name"] == full and policy != but
            for policy, body in self.model.items()
        )

    @rule(name=st.sampled_from("xy"), source=SOURCES)
    def create(self, name: str, source: str) -> None:
        body = self.body(name, source)
        answer = self.api.call("POST", "/v1/policies", body)
        assert answer.status == (409 if self.taken(name) else 201)
        if answer.status == 201:
            policy = answer.body["policy_id"]
            self.made.append(policy)
            self.model[policy], self.versions[policy] = body, 1

    @rule(slot=SLOTS, name=st.sampled_from("xy"), source=SOURCES, behind=st.integers(-1, 1))
    def replace(self, slot: int, name: str, source: str, behind: int) -> None:
        if slot >= len(self.made):
            return
        policy = self.made[slot]
        body, present = self.body(name, source), self.model[policy]
        version = self.versions[policy]
        answer = self.api.call(
            "PUT",
            f"/v1/policies/{policy}",
            body,
            headers={"If-Match": f'"{version - behind}"'},
        )
        if present is None:
            assert answer.status == 404
        elif behind:
            assert answer.status == 412
        elif body == present:
            assert (answer.status, answer.body["version"]) == (200, version)
        elif body["name"] != present["name"] and self.taken(name, policy):
            assert answer.status == 409
        else:
            assert (answer.status, answer.body["version"]) == (200, version + 1)
            self.model[policy], self.versions[policy] = body, version + 1

    @rule(slot=SLOTS)
    def delete(self, slot: int) -> None:
        if slot >= len(self.made):
            return
        policy = self.made[slot]
        answer = self.api.call("DELETE", f"/v1/policies/{policy}")
        assert answer.status == (404 if self.model[policy] is None else 200)
        if self.model[policy] is not None:
            self.model[policy] = None
            self.versions[policy] += 1

    @rule(slot=SLOTS)
    def restore(self, slot: int) -> None:
        """No file defines what was made here."""
        if slot < len(self.made):
            path = f"/v1/policies/{self.made[slot]}/restore"
            assert self.api.call("POST", path).status == 409

    @rule(slot=SLOTS)
    def history(self, slot: int) -> None:
        if slot < len(self.made):
            policy = self.made[slot]
            found = self.api.admin("GET", f"/v1/policies/{policy}/history")
            numbers = [each["version"] for each in found]
            assert numbers == list(range(self.versions[policy], 0, -1))
            assert (found[0]["change"] == "deleted") == (self.model[policy] is None)

    @rule(source=SOURCES)
    def decide(self, source: str) -> None:
        answer = self.api.evaluate(agent_role=self.role, source_id=source, sensitivity_level="low")
        active = [body for body in self.model.values() if body is not None]
        allowing = sorted(body["name"] for body in active if source in body["allowed_sources"])
        if allowing:
            assert (answer["decision"], answer["policy_name"]) == ("ALLOW", allowing[0])
        elif active:
            first = min(body["name"] for body in active)
            assert (answer["decision"], answer["policy_name"]) == ("DENY", first)
        else:
            assert answer["policy_name"] == "default_deny"

    @invariant()
    def the_list_is_the_model(self) -> None:
        found = self.api.admin("GET", f"/v1/policies?agent_role={self.role}")
        listed = {each["policy_id"]: (each["name"], each["allowed_sources"]) for each in found}
        assert listed == {
            policy: (body["name"], body["allowed_sources"])
            for policy, body in self.model.items()
            if body is not None
        }


def test_any_sequence_of_calls_changes_policies_as_the_model_predicts(run: Run) -> None:
    run(Policies)
