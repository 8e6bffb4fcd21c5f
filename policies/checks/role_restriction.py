"""Check 3: the agent may use the role, and so may the key (`CONTRACT.md`, The ten checks).

A key's `permitted_roles` apply to every call with that key, whether or not the call names an agent:
a key with `permitted_roles` is not an unbound key (`CONTRACT.md`, The ten checks).
"""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, Facts, failed
from policies.retrieval import Retrieval


def role_restriction(retrieval: Retrieval, facts: Facts) -> CheckFinding:
    role = retrieval.agent_role
    agent, key = facts.agent, facts.key
    if agent is not None and role not in agent.permitted_roles:
        return failed(
            "role_not_permitted",
            f"role `{role}` is not among the `permitted_roles` of agent `{agent.agent_id}`",
        )
    # An empty list restricts nothing on a key. An agent's list is never empty (`model.Agent`).
    if key.permitted_roles:
        if role not in key.permitted_roles:
            return failed(
                "key_role_restriction",
                f"role `{role}` is not among the `permitted_roles` of key `{key.key_id}`",
            )
        return PASSED
    return SKIPPED if agent is None else PASSED
