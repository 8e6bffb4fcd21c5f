"""Whom a key stands for, where a request names no agent and no role.

Knows no request. What it fills in is judged like what the request said.
"""

from collections.abc import Callable

from policies.definitions.model import Key
from policies.sets.policy_set import PolicySet
from sidecar.unmapped import UNKNOWN


def agent_of(key: Key) -> str | None:
    """The agent that the key is tied to, None if it is tied to none."""
    return key.bound_agent_id


def role_of(
    key: Key,
    agent_id: str | None,
    policy_set: PolicySet,
    speaks_for: Callable[[str | None], bool],
) -> str | None:
    """The registered agent's own role, else the one role that the key permits; None if there is
    neither. Raises `MissingDocument` while the agent's document is not here. For an agent that the
    sidecar's own key does not speak for: the key's one role, or `UNKNOWN`."""
    if not speaks_for(agent_id):
        # Every such call is denied for that. The agent's document may not be here.
        return key.permitted_roles[0] if len(key.permitted_roles) == 1 else UNKNOWN
    agent = None if agent_id is None else policy_set.agent(agent_id)
    if agent is not None:
        return agent.permitted_roles[0]  # the publisher puts the agent's own role first
    return key.permitted_roles[0] if len(key.permitted_roles) == 1 else None
