"""Check 7: the policy applies to the call's agent, by `permitted_agent_ids` (`CONTRACT.md`, The ten
checks)."""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, failed
from policies.retrieval import Retrieval
from policies.sets.role import Clause


def agent_permitted(retrieval: Retrieval, clause: Clause) -> CheckFinding:
    admits = clause.admits
    if admits is None:
        return SKIPPED
    agent_id = retrieval.agent_id
    if agent_id is None:
        return failed(
            clause.name, f"policy `{clause.name}` admits named agents only, and the call names none"
        )
    if not admits(agent_id):
        return failed(
            clause.name,
            f"agent `{agent_id}` is not among the `permitted_agent_ids` of policy `{clause.name}`",
        )
    return PASSED
