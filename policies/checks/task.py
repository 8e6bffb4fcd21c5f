"""Check 8: if the call names a task, the policy allows it and does not deny it (`CONTRACT.md`, The
ten checks). An empty `allowed_tasks` allows every task that is not denied."""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, failed
from policies.retrieval import Retrieval
from policies.sets.role import Clause


def task(retrieval: Retrieval, clause: Clause) -> CheckFinding:
    name = retrieval.task_type
    if name is None:
        return SKIPPED
    if name in clause.denied_tasks:
        return failed(clause.name, f"task `{name}` is in `denied_tasks` of policy `{clause.name}`")
    if clause.allowed_tasks and name not in clause.allowed_tasks:
        return failed(
            clause.name, f"task `{name}` is not in `allowed_tasks` of policy `{clause.name}`"
        )
    return PASSED
