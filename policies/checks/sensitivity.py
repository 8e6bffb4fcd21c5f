"""Check 10: the call's sensitivity is at most the policy's `max_sensitivity` (`CONTRACT.md`, The
ten checks)."""

from policies.checks.finding import PASSED, CheckFinding, failed
from policies.definitions.model import RANK
from policies.retrieval import Retrieval
from policies.sets.role import Clause


def sensitivity(retrieval: Retrieval, clause: Clause) -> CheckFinding:
    level = retrieval.sensitivity_level
    if RANK[level] > clause.rank:
        return failed(
            clause.name,
            f"sensitivity `{level}` is above `{clause.max_sensitivity}`, "
            f"the most that policy `{clause.name}` allows",
        )
    return PASSED
