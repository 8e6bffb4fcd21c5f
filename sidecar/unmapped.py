"""Describes a well-formed question from which no retrieval can be made, and finds whom a key stands
for where a request names no agent and no role.

Doors read other shapes of the question, and may find that something is missing. That is a denial
like any other, and `Enforcer.deny` records it. What a key fills in is judged like what the request
said.
"""

from collections.abc import Callable

from policies.definitions.model import Key
from policies.ground.canonical import identifier_fault
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet

UNMAPPED = "unmapped_request"
"""The policy name of the denial."""
UNKNOWN = "unknown"
"""Stands for a name that could not be read."""


class Unmapped(ValueError):
    """The message says what is missing, and which setting or field supplies it. The names are those
    that could be read, None for the others."""

    def __init__(
        self,
        reason: str,
        *,
        agent_role: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self._names = (agent_role, user_id, agent_id)

    def retrieval(self, door: str) -> Retrieval:
        """Return the retrieval that is recorded; `door` is the source type of its events."""
        role, user, agent = map(_readable, self._names)
        # The highest level: what could not be read is not known to be harmless.
        return Retrieval(
            role, user, f"{door}://unmapped", "critical", None, None, agent, None, door
        )


def _readable(name: str | None) -> str:
    """Return `name` if a record may hold it, else `UNKNOWN`."""
    return UNKNOWN if name is None or identifier_fault(name) else name


def agent_of(key: Key) -> str | None:
    """Return the agent that the key is bound to, None if it is bound to none."""
    return key.bound_agent_id


def role_of(
    key: Key,
    agent_id: str | None,
    policy_set: PolicySet,
    speaks_for: Callable[[str | None], bool],
) -> str | None:
    """Return the registered agent's own role, else the one role that the key permits; None if there
    is neither. Raises `MissingDocument` while the agent's document is not here. For an agent that
    the sidecar's own key does not speak for: the key's one role, or `UNKNOWN`."""
    if not speaks_for(agent_id):
        # Such a call is denied in any case. The agent's document may not be here.
        return key.permitted_roles[0] if len(key.permitted_roles) == 1 else UNKNOWN
    agent = None if agent_id is None else policy_set.agent(agent_id)
    if agent is not None:
        return agent.permitted_roles[0]  # the publisher puts the agent's own role first
    return key.permitted_roles[0] if len(key.permitted_roles) == 1 else None
