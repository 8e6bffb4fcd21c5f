"""Sessions: whose they are, until when, and that none comes back to life."""

from __future__ import annotations

import itertools
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.control_api.machines.conftest import Run
from tests.support.control_api import ControlApi

RUNS = itertools.count()
DAY = 86_400
AGENTS = ("a0", "a1", None)
SLOTS = st.integers(0, 2)


class Sessions(RuleBasedStateMachine):
    api: ClassVar[ControlApi]

    def __init__(self) -> None:
        super().__init__()
        self.run = next(RUNS)
        self.owners: dict[str, str | None] = {}
        self.dies: dict[str, float] = {}
        self.revoked: dict[str, str | None] = {}
        self.events: dict[str, int] = {}

    @initialize()
    def agents(self) -> None:
        for agent in ("a0", "a1"):
            if self.api.call("GET", f"/v1/agents/{agent}").status == 404:
                self.api.approved(agent)

    def session(self, slot: int) -> str:
        return f"s-{self.run}-{slot}"

    def state(self, session: str) -> str:
        if session in self.revoked:
            return "revoked"
        return "active" if self.api.time.ahead < self.dies[session] else "expired"

    @rule(slot=SLOTS, agent=st.sampled_from(AGENTS))
    def evaluate(self, slot: int, agent: str | None) -> None:
        session = self.session(slot)
        answer = self.api.evaluate(session_id=session, agent_id=agent)
        if session not in self.owners:
            self.owners[session] = agent
            self.dies[session] = self.api.time.ahead + DAY
        expected = {"revoked": "session_revoked", "expired": "session_expired"}.get(
            self.state(session)
        )
        if expected is None and self.owners[session] != agent:
            expected = "session_agent_mismatch"
        assert answer["policy_name"] == (expected or "support-reads")
        self.events[session] = self.events.get(session, 0) + 1

    @rule(slot=SLOTS)
    def by_who_may_not_claim(self, slot: int) -> None:
        session = self.session(slot)
        answer = self.api.evaluate(session_id=session, agent_id="nobody")
        assert answer["policy_name"] == "agent_not_registered"
        self.events[session] = self.events.get(session, 0) + 1

    @rule(slot=SLOTS, reason=st.sampled_from([None, "lost", "other"]))
    def revoke(self, slot: int, reason: str | None) -> None:
        session = self.session(slot)
        query = "" if reason is None else f"?reason={reason}"
        answer = self.api.call("DELETE", f"/v1/sessions/{session}{query}")
        if session not in self.owners:
            assert answer.status == 404
            return
        self.revoked.setdefault(session, reason)
        assert (answer.status, answer.body["status"]) == (200, "revoked")
        assert answer.body["revocation_reason"] == self.revoked[session]

    @rule()
    def time_goes_by(self) -> None:
        # Not to the second of an end: the model's clock and the service's differ by a moment.
        self.api.time.ahead += DAY / 2 + 7

    @invariant()
    def each_is_shown_as_it_is(self) -> None:
        listed = {
            each["session_id"]: each["status"]
            for each in self.api.admin("GET", "/v1/sessions?limit=1000")
        }
        for slot in range(3):
            session = self.session(slot)
            answer = self.api.call("GET", f"/v1/sessions/{session}")
            if session not in self.owners:
                assert answer.status == 404
                assert session not in listed
                continue
            shown = answer.body
            assert shown["status"] == listed[session] == self.state(session)
            assert shown["agent_id"] == self.owners[session]
            assert shown["events"] == self.events[session]


def test_any_sequence_of_calls_changes_sessions_as_the_model_predicts(run: Run) -> None:
    run(Sessions)
