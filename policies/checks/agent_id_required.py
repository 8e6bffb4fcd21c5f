"""Check 1: the call names an agent, if the tenant requires that (`CONTRACT.md`, The ten checks)."""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, Facts, failed
from policies.retrieval import Retrieval


def agent_id_required(retrieval: Retrieval, facts: Facts) -> CheckFinding:
    if not facts.settings.require_agent_id:
        return SKIPPED
    if retrieval.agent_id is None:
        return failed(
            "agent_id_required", "the tenant requires `agent_id` in every call, and this has none"
        )
    return PASSED
