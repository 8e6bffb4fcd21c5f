"""What a check looks at and what it finds. Knows no check."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from policies.definitions.model import Agent, Key, Session, TenantSettings
from policies.retrieval import Retrieval
from policies.sets.role import Clause, Role


class CheckOutcome(Enum):
    passed = "passed"
    failed = "failed"
    skipped = "skipped"
    not_reached = "not_reached"


class CheckFinding(NamedTuple):
    """The outcome of one check; a failure also says under which name the call is denied, and what
    was compared with what."""

    outcome: CheckOutcome
    policy_name: str = ""
    reason: str = ""


PASSED = CheckFinding(CheckOutcome.passed)
SKIPPED = CheckFinding(CheckOutcome.skipped)
NOT_REACHED = CheckFinding(CheckOutcome.not_reached)


def failed(policy_name: str, reason: str) -> CheckFinding:
    return CheckFinding(CheckOutcome.failed, policy_name, reason)


class Facts(NamedTuple):
    """What is known at the moment of a decision, whoever gathered it.

    `agent` is the registry's entry of the call's `agent_id`, None where there is none. `session` is
    None where the call names none, or where it was not looked up because an earlier check fails.
    `role` is None where no active policy has the call's role. `revision` is that of the policy set.
    """

    settings: TenantSettings
    key: Key
    agent: Agent | None
    session: Session | None
    role: Role | None
    revision: int


CallCheck = Callable[[Retrieval, Facts], CheckFinding]
ClauseCheck = Callable[[Retrieval, Clause], CheckFinding]
