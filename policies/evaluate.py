"""The decision: may this agent, in this role, for this user, read this source?

    facts    = gather(policy_set, key, retrieval)        the caller, and the policies of its role
    admitted(retrieval, facts)                           checks 1 to 4: may it claim a session?
    decision = evaluate(retrieval, facts)                all ten checks; the first failure decides

Knows the order of the checks and how several policies of one role combine (`CONTRACT.md`, Several
policies for one role). Pure: knows nothing of where facts come from or where decisions go.
"""

from typing import Literal, NamedTuple

from policies.checks.finding import NOT_REACHED, CheckFinding, CheckOutcome, Facts
from policies.checks.order import CALL, CHECKS, CLAUSE, IDENTITY, NAMES
from policies.checks.policy_exists import DEFAULT_DENY
from policies.definitions.model import Key, Session
from policies.definitions.wildcard import shared_prefix
from policies.ground.canonical import rfc3339
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet
from policies.sets.role import Clause, Role
from policies.sets.source_levels import at_effective_level

_FAILED = CheckOutcome.failed
_BEFORE_CLAUSES = len(CALL)
_UNREACHED = (NOT_REACHED,) * len(CHECKS)
_CheckedClause = tuple[Clause, list[CheckFinding]]

TENANT_FROZEN = "tenant_frozen"
"""The `policy_name` of every denial while the tenant is frozen (`CONTRACT.md`, Incident
controls)."""


class Decision(NamedTuple):
    """The result of an evaluation with its reasons: one finding for each of the ten checks, in
    order.

    `check` names the check that failed; None on an ALLOW, or if no check was reached. `policy_id`
    and `policy_version` are those of the policy that decided; None if no policy did.
    """

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    check: str | None
    policy_id: str | None
    policy_version: int | None
    findings: tuple[CheckFinding, ...]


def gather(
    policy_set: PolicySet, key: Key, retrieval: Retrieval, session: Session | None = None
) -> Facts:
    """Return the facts for a decision. The caller passes the session: to look it up may mean to
    claim it, and a claim writes to the store. So the caller first checks with `admitted` whether
    the call may claim a session."""
    agent_id = retrieval.agent_id
    return Facts(
        policy_set.settings(),
        key,
        None if agent_id is None else policy_set.agent(agent_id),
        session,
        policy_set.role(retrieval.agent_role),
        policy_set.revision,
        policy_set.sources(),
    )


def admitted(retrieval: Retrieval, facts: Facts) -> bool:
    """Return whether the call may claim a session: checks 1 to 4 pass and the tenant is not
    frozen."""
    return facts.settings.frozen_at is None and all(
        check(retrieval, facts).outcome is not _FAILED for check in IDENTITY
    )


def evaluate(retrieval: Retrieval, facts: Facts) -> Decision:
    """Return the decision on `retrieval` given `facts`. Never raises on any parsed retrieval."""
    # INVARIANT: the highest level that is stated decides.
    retrieval = at_effective_level(retrieval, facts.sources)
    # INVARIANT: a freeze comes before all checks and is not one of them: nothing is evaluated.
    if facts.settings.frozen_at is not None:
        return refuse(TENANT_FROZEN, _frozen(facts.settings.frozen_at))
    # If a check raises all the same, the caller denies and records `evaluation_error`.
    findings: list[CheckFinding] = []
    for check in CALL:
        finding = check(retrieval, facts)
        findings.append(finding)
        if finding.outcome is _FAILED:
            return _deny(findings, None)
    role = facts.role
    assert role is not None  # check 6 passed
    clause, clause_findings = _choose(retrieval, role)
    findings += clause_findings
    if clause_findings[-1].outcome is _FAILED:
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


class Answer(NamedTuple):
    """A decision without its reasons. `check` is the name of the check that failed, None on an
    ALLOW."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    check: str | None


def evaluate_admitted(retrieval: Retrieval, role: Role | None) -> Answer:
    """Return the decision, without its reasons, on a call that is known to pass checks 1 to 5. Runs
    checks 6 to 10 by the policies of its role; `role` is None if there is none."""
    if role is None:
        return Answer("DENY", DEFAULT_DENY, NAMES[_BEFORE_CLAUSES - 1])
    clause, findings = _choose(retrieval, role)
    last = findings[-1]
    if last.outcome is not _FAILED:
        return Answer("ALLOW", clause.name, None)
    return Answer("DENY", last.policy_name, NAMES[_BEFORE_CLAUSES + len(findings) - 1])


def refuse(policy_name: str, reason: str) -> Decision:
    """Return a DENY that is made before any check runs, because of a frozen tenant, a stale policy
    set, an unreadable request or an unknown route. The default is to deny."""
    return Decision("DENY", policy_name, reason, None, None, None, _UNREACHED)


def _frozen(since: int) -> str:
    # The agent reads this reason, so the operator's own words for the freeze are left out.
    return (
        f"the tenant has been frozen since `{rfc3339(since)}`: every evaluation is denied until an "
        "administrator lifts the freeze"
    )


def _deny(findings: list[CheckFinding], clause: Clause | None) -> Decision:
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


def _choose(retrieval: Retrieval, role: Role) -> _CheckedClause:
    """Return the policy (`Clause`) that decides, and its findings up to the first failure.

    A policy that does not admit the agent does not apply. If any policy that applies denies
    explicitly, it decides, with a denial. Otherwise the first policy by name that passes all its
    checks decides, and allows. Otherwise the policy that passed the most checks decides, and
    denies. A role's clauses are sorted by name.
    """
    clauses, name = role.clauses, retrieval.source_id
    if len(clauses) == 1:  # many roles have one policy
        return clauses[0], _check_clause(retrieval, clauses[0])
    if not role.denies(name) and retrieval.task_type not in role.denied_tasks:
        # No policy denies explicitly, so the first that passes decides. Only one that allows the
        # source can pass: the findings of the others, each with its reason, are not needed.
        for clause in clauses:
            if clause.allows(name):
                findings = _check_clause(retrieval, clause)
                if findings[-1].outcome is not _FAILED:
                    return clause, findings
    allowing: _CheckedClause | None = None
    explicit: list[_CheckedClause] = []
    failing: list[_CheckedClause] = []
    for clause in clauses:
        findings = _check_clause(retrieval, clause)
        if findings[-1].outcome is not _FAILED:
            # No early return: a later policy may deny explicitly.
            allowing = allowing or (clause, findings)
        # With more than one finding, check 7 passed: the policy applies to this agent.
        elif len(findings) > 1 and denies_explicitly(retrieval, clause):
            explicit.append((clause, findings))
        else:
            failing.append((clause, findings))
    # INVARIANT: an explicit denial overrides every allow, whatever its policy's name.
    if explicit:
        return _closest(retrieval, explicit)
    return allowing or _closest(retrieval, failing)


def _closest(retrieval: Retrieval, denials: list[_CheckedClause]) -> _CheckedClause:
    """Return the denial whose reason the answer shows. Of the denials that passed the most checks,
    it is the one whose sources are closest to the requested source; of equally close ones, the
    first by name (`CONTRACT.md`, Several policies for one role)."""
    furthest = max(len(findings) for _, findings in denials)
    tied = [each for each in denials if len(each[1]) == furthest]
    if len(tied) == 1:
        return tied[0]
    # `max` keeps the first of equals, and clauses are sorted by name.
    return max(tied, key=lambda each: _nearness(each[0], retrieval.source_id))


def _nearness(clause: Clause, source: str) -> tuple[bool, int]:
    """Rate how close a policy's list of sources is to `source`; higher is closer. A list that
    matches beats one that doesn't; then the longest literal prefix that an entry shares with
    `source` counts."""
    if clause.denies(source):
        return True, shared_prefix(clause.denied_prefixes, source)
    return clause.allows(source), shared_prefix(clause.allowed_prefixes, source)


def _check_clause(retrieval: Retrieval, clause: Clause) -> list[CheckFinding]:
    """Return the findings of checks 7 to 10 by one policy, up to the first failure."""
    findings: list[CheckFinding] = []
    for check in CLAUSE:
        finding = check(retrieval, clause)
        findings.append(finding)
        if finding.outcome is _FAILED:
            break
    return findings


def denies_explicitly(retrieval: Retrieval, clause: Clause) -> bool:
    """Return whether one of the clause's `denied_…` lists matches the retrieval. Such a denial
    overrides every allow."""
    return retrieval.task_type in clause.denied_tasks or clause.denies(retrieval.source_id)
