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
from policies.checks.finding import NOT_REACHED, CheckFinding, CheckOutcome, Facts
from policies.definitions.model import Key
from policies.definitions.wildcard import shared_prefix
from policies.ground.canonical import rfc3339
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet
from policies.sets.role import Clause

_FAILED = CheckOutcome.failed
_UNREACHED = (NOT_REACHED,) * len(CHECKS)
_Walked = tuple[Clause, list[CheckFinding]]

TENANT_FROZEN = "tenant_frozen"
"""What every evaluation is denied by while the tenant is frozen (contract, section 6)."""


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
    findings: tuple[CheckFinding, ...]


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
    """Whether the tenant is not frozen and checks 1 to 4 pass: only then may the call claim a
    session."""
    return facts.settings.frozen_at is None and all(
        check(retrieval, facts).outcome is not _FAILED for check in IDENTITY
    )


def evaluate(retrieval: Retrieval, facts: Facts) -> Decision:
    """The decision on `retrieval` given `facts`. Never raises on any parsed retrieval."""
    # INVARIANT: a freeze comes before all checks. It is not one of them: nothing is evaluated.
    if facts.settings.frozen_at is not None:
        return refuse(TENANT_FROZEN, _frozen(facts.settings.frozen_at))
    findings: list[CheckFinding] = []
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
    """A DENY before any check: a frozen tenant, a policy set too old to decide by, a request that
    can't be read, an unknown route. The default is no."""
    return Decision("DENY", policy_name, reason, None, None, None, _UNREACHED)


def _frozen(since: int) -> str:
    # Not the operator's own words: the agent hears this.
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


def _choose(retrieval: Retrieval, clauses: tuple[Clause, ...]) -> _Walked:
    """The clause that decides, and its findings up to the first failure.

    A policy that does not admit the agent does not apply. Of those that apply, an explicit deny in
    any denies; otherwise the first by name that passes allows; otherwise the one that got furthest
    denies. Clauses stand in order of name.
    """
    if len(clauses) == 1:
        return clauses[0], _walk(retrieval, clauses[0])
    allowing: _Walked | None = None
    explicit: list[_Walked] = []
    failing: list[_Walked] = []
    for clause in clauses:
        walked = _walk(retrieval, clause)
        if walked[-1].outcome is not _FAILED:
            allowing = allowing or (clause, walked)
        elif len(walked) > 1 and _denies(retrieval, clause):
            explicit.append((clause, walked))
        else:
            failing.append((clause, walked))
    if explicit:
        return _closest(retrieval, explicit)
    return allowing or _closest(retrieval, failing)


def _closest(retrieval: Retrieval, denials: list[_Walked]) -> _Walked:
    """The denial that the reason is taken from: of those that got furthest, the one whose sources
    come nearest the source asked for; the first of equals, which is the first by name (contract,
    section 6)."""
    furthest = max(len(walked) for _, walked in denials)
    tied = [each for each in denials if len(each[1]) == furthest]
    if len(tied) == 1:
        return tied[0]
    return max(tied, key=lambda each: _nearness(each[0], retrieval.source_id))


def _nearness(clause: Clause, source: str) -> tuple[bool, int]:
    """How near the list that speaks of `source` comes to it: an entry that matches is nearer than
    any that does not; then the longest literal beginning that an entry shares with it counts."""
    if clause.denies(source):
        return True, shared_prefix(clause.denied_prefixes, source)
    return clause.allows(source), shared_prefix(clause.allowed_prefixes, source)


def _walk(retrieval: Retrieval, clause: Clause) -> list[CheckFinding]:
    findings: list[CheckFinding] = []
    for check in CLAUSE:
        finding = check(retrieval, clause)
        findings.append(finding)
        if finding.outcome is _FAILED:
            break
    return findings


def _denies(retrieval: Retrieval, clause: Clause) -> bool:
    """Whether the clause denies in so many words, whatever else it says."""
    return retrieval.task_type in clause.denied_tasks or clause.denies(retrieval.source_id)
