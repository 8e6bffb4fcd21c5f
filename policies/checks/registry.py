"""Check 2: if the call names an agent, it is registered and approved (`CONTRACT.md`, The ten
checks)."""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, Facts, failed
from policies.retrieval import Retrieval


def registry(retrieval: Retrieval, facts: Facts) -> CheckFinding:
    agent_id = retrieval.agent_id
    if agent_id is None:
        return SKIPPED
    agent = facts.agent
    if agent is None:
        return failed("agent_not_registered", f"agent `{agent_id}` is not in the registry")
    if agent.status != "approved":
        return failed(
            "agent_not_approved",
            f"agent `{agent_id}` has the status `{agent.status}`; only `approved` may evaluate",
        )
    return PASSED
