"""The input of a check, which is `Facts`, and its result, a `CheckFinding`. Knows no particular
check."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from policies.definitions.model import Agent, Key, Session, TenantSettings
from policies.retrieval import Retrieval
from policies.sets.role import Clause, Role
from policies.sets.source_levels import SourceLevels


class CheckOutcome(Enum):
    passed = "passed"
    failed = "failed"
    skipped = "skipped"
    not_reached = "not_reached"


class CheckFinding(NamedTuple):
    """The result of one check. If it failed, it also has the `policy_name` of the denial, and a
    reason that names the two values that were compared."""

    outcome: CheckOutcome
    policy_name: str = ""
    reason: str = ""


PASSED = CheckFinding(CheckOutcome.passed)
SKIPPED = CheckFinding(CheckOutcome.skipped)
NOT_REACHED = CheckFinding(CheckOutcome.not_reached)


def failed(policy_name: str, reason: str) -> CheckFinding:
    return CheckFinding(CheckOutcome.failed, policy_name, reason)


class Facts(NamedTuple):
    """Everything a decision rests on besides the call itself.

    `agent` is the registry entry of the call's `agent_id`, or None if there is no entry. `session`
    is None if the call names no session, or one that was never claimed or not looked up. `role` is
    None if no active policy has the call's role. `revision` is the policy set's. `sources` are the
    sensitivity levels that the tenant states for its sources, None if it states none.
    """

    settings: TenantSettings
    key: Key
    agent: Agent | None
    session: Session | None
    role: Role | None
    revision: int
    sources: SourceLevels | None = None


CallCheck = Callable[[Retrieval, Facts], CheckFinding]
ClauseCheck = Callable[[Retrieval, Clause], CheckFinding]
