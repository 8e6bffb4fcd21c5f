"""Check 4: a key that is bound to an agent serves only this agent, and an agent that is bound to a
key uses only this key (`CONTRACT.md`, The ten checks)."""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, Facts, failed
from policies.retrieval import Retrieval

_NAME = "key_agent_binding"


def binding(retrieval: Retrieval, facts: Facts) -> CheckFinding:
    key, agent = facts.key, facts.agent
    bound = key.bound_agent_id
    if bound is not None and retrieval.agent_id != bound:
        given = "none" if retrieval.agent_id is None else f"`{retrieval.agent_id}`"
        return failed(
            _NAME, f"key `{key.key_id}` is bound to agent `{bound}`, and the call names {given}"
        )
    if agent is not None and agent.bound_key_id is not None:
        if agent.bound_key_id != key.key_id:
            return failed(
                _NAME,
                f"agent `{agent.agent_id}` is bound to key `{agent.bound_key_id}`, "
                f"and the call came with `{key.key_id}`",
            )
        return PASSED
    return SKIPPED if bound is None else PASSED
