"""Finds the decisions that a tenant's candidates make otherwise than its active policies.

    decision = evaluate(retrieval, facts)                              by the active policies
    differing = differences(policy_set, retrieval, facts, decision)    by the candidates

A candidate is a whole policy set beside the active one. It decides with the same facts, but for the
role, which comes from the candidate's own document. Checks 1 to 5 and a freeze don't look at
policies, so they decide alike under every candidate.

INVARIANT: a candidate never changes an answer. `differences` takes the decision as it is, returns
something else, and raises nothing. Knows nothing of counting
(`control_api.store.counters.candidates`).
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from policies.checks.finding import Facts
from policies.checks.order import NAMES
from policies.evaluate import Answer, Decision, evaluate_admitted
from policies.retrieval import Retrieval
from policies.sets.role import Role

ERROR = "evaluation_error"
"""The `policy_name` of a candidate that could not be read or evaluated."""

MAX_ANSWERS = 128
"""The most answers that are remembered for one role of a candidate."""

_WITHOUT_POLICIES = frozenset(NAMES[: NAMES.index("policy_exists")])


class CandidateRoles(Protocol):
    """An object that looks up candidates' roles: a `PolicySet`, or a stand-in that first loads what
    it needs."""

    def candidate_role(self, candidate: str, role: str) -> Role | None:
        """Return the role `role` of the candidate named `candidate`; None if the candidate has no
        policy of that role."""
        ...


class CandidateDecision(NamedTuple):
    """The decision of a candidate where it differs from the decision of the active policies.
    `decision` is `ERROR` if the candidate could not be read or evaluated. `check` is the check that
    failed, None on an `ALLOW` or `ERROR`."""

    name: str
    revision: int
    decision: Literal["ALLOW", "DENY", "ERROR"]
    policy_name: str
    check: str | None

    def to_wire(self) -> dict[str, Any]:
        """Return the decision as an item of an entry's `pub.candidates`. As in a response, a
        `check` of None is left out rather than written as null."""
        wire = self._asdict()
        if self.check is None:
            del wire["check"]
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "CandidateDecision":
        """Parse an item of `pub.candidates`: the reverse of `to_wire`."""
        return cls(
            wire["name"], wire["revision"], wire["decision"], wire["policy_name"], wire.get("check")
        )


def differences(
    policy_set: CandidateRoles, retrieval: Retrieval, facts: Facts, decision: Decision
) -> list[CandidateDecision]:
    """Return a `CandidateDecision` for each candidate that decides otherwise than `decision` or
    that failed, in order of the candidates' names. A candidate that decides the same by another
    policy is left out.

    `policy_set` must be the one that `facts` were gathered from, and hold the documents that
    `candidate_documents` lists. A document that can't be read counts as `ERROR`.
    """
    candidates = facts.settings.candidates
    if not candidates or _decided_without_policies(decision):
        return []
    found = []
    for name, revision in candidates:
        # A control API beside others may read a document a moment before it learns of its revision.
        # Such a decision is not one of those that count as decided: see `policies/INTERNALS.md`.
        if revision > facts.revision:
            continue
        try:
            role = policy_set.candidate_role(name, retrieval.agent_role)
            # A candidate mostly leaves a role as it is, and equal documents decide alike.
            if _equal(role, facts.role):
                continue
            answer = _answer(retrieval, role)
        except Exception:  # noqa: BLE001  # whatever went wrong, the answer must not depend on it
            found.append(CandidateDecision(name, revision, "ERROR", ERROR, None))
            continue
        if answer.decision != decision.decision:
            found.append(CandidateDecision(name, revision, *answer))
    return found


def _decided_without_policies(decision: Decision) -> bool:
    """Return whether the decision is a denial by a freeze or by one of checks 1 to 5, none of which
    looks at policies."""
    return decision.decision == "DENY" and (
        decision.check is None or decision.check in _WITHOUT_POLICIES
    )


def _answer(retrieval: Retrieval, role: Role | None) -> Answer:
    """Return the answer of a candidate's policies for the retrieval. `role` is the candidate's
    role, None if it has no policy of that role."""
    if role is None:
        return evaluate_admitted(retrieval, None)
    # All that checks 6 to 10 look at, but the role itself. An agent asks for the same few things
    # again and again, and an evaluation costs several times as much as this look.
    _, _, source, level, _, task, agent, *_ = retrieval
    asked = agent, task, source, level
    known: Answer | None = role.answers.get(asked)
    if known is None:
        if len(role.answers) >= MAX_ANSWERS:
            role.answers.clear()
        known = role.answers[asked] = evaluate_admitted(retrieval, role)
    return known


def _equal(one: Role | None, other: Role | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.digest == other.digest
