"""Who may act in a role: the registered agents, and the call without one, that pass the identity
checks (1 to 4) with at least one of the tenant's keys.

The checks are the core's own. Sessions and a freeze of the tenant are not part of it. Pure, and
knows no policy.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policies.checks.finding import CheckOutcome, Facts
from policies.checks.order import IDENTITY
from policies.definitions.model import Agent, Key, TenantSettings
from policies.retrieval import Retrieval


class Registry(NamedTuple):
    """A tenant's settings, its registered agents, and its keys that may evaluate now."""

    settings: TenantSettings
    agents: Sequence[Agent]
    keys: Sequence[Key]


class Callers(NamedTuple):
    """Who may act in one role: whether the call without an agent may, and the ids of the agents
    that may."""

    absent: bool
    agents: tuple[str, ...]


class CallersOfRoles:
    """Finds the callers of each role in one registry."""

    def __init__(self, registry: Registry) -> None:
        self._settings = registry.settings
        self._agents: dict[str, list[Agent]] = defaultdict(list)
        for agent in registry.agents:
            for role in dict.fromkeys(agent.permitted_roles):
                self._agents[role].append(agent)
        self._by_id = {key.key_id: key for key in registry.keys}
        self._bound: dict[str, list[Key]] = defaultdict(list)
        # To the checks, unbound keys differ in their roles alone: one for each list is enough.
        free: dict[tuple[str, ...], Key] = {}
        for key in registry.keys:
            if key.bound_agent_id is None:
                free.setdefault(key.permitted_roles, key)
            else:
                self._bound[key.bound_agent_id].append(key)
        self._free = tuple(free.values())

    def of(self, role: str) -> Callers:
        """The callers of one role; the agents' ids are sorted."""
        free = [key for key in self._free if role in (key.permitted_roles or (role,))][:1]
        absent = any(self._passes(role, None, key) for key in free)
        agents = [
            agent.agent_id
            for agent in self._agents[role]
            if any(self._passes(role, agent, key) for key in self._usable(agent, free))
        ]
        return Callers(absent, tuple(sorted(agents)))

    def _usable(self, agent: Agent, free: Sequence[Key]) -> Iterable[Key]:
        """The keys that may pass for this agent; check 4 refuses all others."""
        if agent.bound_key_id is not None:
            own = self._by_id.get(agent.bound_key_id)
            return () if own is None else (own,)
        return (*free, *self._bound[agent.agent_id])

    def _passes(self, role: str, agent: Agent | None, key: Key) -> bool:
        agent_id = None if agent is None else agent.agent_id
        # What the checks of identity read: role, agent, key, settings.
        request = Retrieval(role, "", "", "low", agent_id=agent_id)
        facts = Facts(self._settings, key, agent, None, None, 0)
        return all(check(request, facts).outcome is not CheckOutcome.failed for check in IDENTITY)
