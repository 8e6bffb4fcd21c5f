"""The decision: may this agent, in this role, for this user, read this source? Pure: what is known
is an argument, the answer a value.

    facts    = gather(policy_set, key, retrieval)        who asks, and which policies have the role
    admitted(retrieval, facts)                           checks 1 to 4: may it claim a session?
    decision = evaluate(retrieval, facts)                all ten, the first that fails decides

Knows the order of the checks and how several policies of one role combine (contract, section 3).
Knows nothing of where facts come from or where decisions go.
"""

from typing import Literal, NamedTuple

from policies.checks import CALL, CHECKS, CLAUSE, IDENTITY, NAMES
from policies.checks.finding import NOT_REACHED, Facts, Finding, Outcome
from policies.model import Key
from policies.policy_set import PolicySet
from policies.retrieval import Retrieval
from policies.role import Clause

_FAILED = Outcome.failed
_UNREACHED = (NOT_REACHED,) * len(CHECKS)


class Decision(NamedTuple):
    """An answer and its reasons: one finding for each of the ten checks, in their order.

    `check` names the one that failed, None on an ALLOW and where no check was reached. `policy_id`
    and `policy_version` are those of the policy that decided, None where none did.
    """

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    check: str | None
    policy_id: str | None
    policy_version: int | None
    findings: tuple[Finding, ...]


def gather(policy_set: PolicySet, key: Key, retrieval: Retrieval) -> Facts:
    """Everything but the session, which may have to be claimed first."""
    agent_id = retrieval.agent_id
    return Facts(
        policy_set.settings(),
        key,
        None if agent_id is None else policy_set.agent(agent_id),
        None,
        policy_set.role(retrieval.agent_role),
        policy_set.revision,
    )


def admitted(retrieval: Retrieval, facts: Facts) -> bool:
    """Whether checks 1 to 4 pass: only then may the call claim a session."""
    return all(check(retrieval, facts).outcome is not _FAILED for check in IDENTITY)


def evaluate(retrieval: Retrieval, facts: Facts) -> Decision:
    """The decision on `retrieval` given `facts`. Never raises on any parsed retrieval."""
    findings: list[Finding] = []
    for check in CALL:
        finding = check(retrieval, facts)
        findings.append(finding)
        if finding.outcome is _FAILED:
            return _deny(findings, None)
    role = facts.role
    assert role is not None  # check 6 passed
    clause, walked = _choose(retrieval, role.clauses)
    findings += walked
    if walked[-1].outcome is _FAILED:
        return _deny(findings, clause)
    return Decision(
        "ALLOW",
        clause.name,
        f"policy `{clause.name}` allows role `{retrieval.agent_role}` to read "
        f"`{retrieval.source_id}` at `{retrieval.sensitivity_level}`",
        None,
        clause.policy_id,
        clause.version,
        tuple(findings),
    )


def refuse(policy_name: str, reason: str) -> Decision:
    """A DENY before any check: a policy set too old to decide by, a request that can't be read, a
    route that nobody knows. The default is no."""
    return Decision("DENY", policy_name, reason, None, None, None, _UNREACHED)


def _deny(findings: list[Finding], clause: Clause | None) -> Decision:
    last = findings[-1]
    reached = len(findings)
    return Decision(
        "DENY",
        last.policy_name,
        last.reason,
        NAMES[reached - 1],
        None if clause is None else clause.policy_id,
        None if clause is None else clause.version,
        (*findings, *_UNREACHED[reached:]),
    )


def _choose(retrieval: Retrieval, clauses: tuple[Clause, ...]) -> tuple[Clause, list[Finding]]:
    """The clause that decides, and its findings up to the first failure.

    A policy that does not admit the agent does not apply. Of those that apply, an explicit deny in
    any denies; otherwise one that passes allows; otherwise the one that got furthest denies. The
    clauses stand in order of name, so the first of equals is the first by name.
    """
    best, furthest = clauses[0], _walk(retrieval, clauses[0])
    if len(clauses) == 1:
        return best, furthest
    allowing: tuple[Clause, list[Finding]] | None = None
    for clause in clauses:
        walked = furthest if clause is best else _walk(retrieval, clause)
        failing = walked[-1].outcome is _FAILED
        if failing and len(walked) > 1 and _denies(retrieval, clause):
            return clause, walked
        if not failing and allowing is None:
            allowing = clause, walked
        if len(walked) > len(furthest):
            best, furthest = clause, walked
    return allowing or (best, furthest)


def _walk(retrieval: Retrieval, clause: Clause) -> list[Finding]:
    findings: list[Finding] = []
    for check in CLAUSE:
        finding = check(retrieval, clause)
        findings.append(finding)
        if finding.outcome is _FAILED:
            break
    return findings


def _denies(retrieval: Retrieval, clause: Clause) -> bool:
    """Whether the clause denies in so many words, whatever else it says."""
    return retrieval.task_type in clause.denied_tasks or clause.denies(retrieval.source_id)
