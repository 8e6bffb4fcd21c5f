"""Finds who may act in a role, and which denials a call escapes by naming no agent.

Those may act in a role that pass the identity checks with at least one of the tenant's keys:
registered agents, and calls that name none. The checks are the core's own. Sessions and a freeze of
the tenant are not part of it.

A policy with `permitted_agent_ids` doesn't apply to a call that names no agent, and another policy
of the role may allow what it denies. The setting `require_agent_id` closes this gap: it refuses
calls that name no agent. Pure, and knows no file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policies.analysis.patterns import overlaps_with
from policies.checks.finding import CheckOutcome, Facts
from policies.checks.order import IDENTITY
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.definitions.wildcard import is_pattern
from policies.retrieval import Retrieval


class RegistrySnapshot(NamedTuple):
    """The data by which the identity checks decide: a tenant's settings, its registered agents, and
    its keys that may evaluate now."""

    settings: TenantSettings
    agents: Sequence[Agent]
    keys: Sequence[Key]


class Callers(NamedTuple):
    """The callers who may act in one role. `absent` says that a call may name no agent; `agents`
    are the ids of the agents that may act in it."""

    absent: bool
    agents: tuple[str, ...]


class CallersOfRoles:
    """Finds the callers of each role, by one registry."""

    def __init__(self, registry: RegistrySnapshot) -> None:
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
        """Return the callers of one role, with the agents' ids sorted."""
        free = [key for key in self._free if role in (key.permitted_roles or (role,))][:1]
        absent = any(self._passes(role, None, key) for key in free)
        agents = [
            agent.agent_id
            for agent in self._agents[role]
            if any(self._passes(role, agent, key) for key in self._usable(agent, free))
        ]
        return Callers(absent, tuple(sorted(agents)))

    def _usable(self, agent: Agent, free: Sequence[Key]) -> Iterable[Key]:
        """Return the keys that may pass check 4 (binding) for this agent."""
        if agent.bound_key_id is not None:
            own = self._by_id.get(agent.bound_key_id)
            return () if own is None else (own,)
        return (*free, *self._bound[agent.agent_id])

    def _passes(self, role: str, agent: Agent | None, key: Key) -> bool:
        agent_id = None if agent is None else agent.agent_id
        # The checks of identity read only role, agent, key and settings.
        request = Retrieval(role, "", "", "low", agent_id=agent_id)
        facts = Facts(self._settings, key, agent, None, None, 0)
        return all(check(request, facts).outcome is not CheckOutcome.failed for check in IDENTITY)


class Escape(NamedTuple):
    """A denial that a call without an agent escapes: `entry` in the list `key` of `policy` does not
    apply to it, and the policy `by` allows some of what the entry denies."""

    policy: Policy
    key: str
    entry: str
    by: Policy


def escapes(policies: Sequence[Policy]) -> Iterator[Escape]:
    """Yield every denial in the policies of a role that a call without an agent escapes."""
    always = [each for each in policies if not each.permitted_agent_ids]
    for policy in policies:
        if not policy.permitted_agent_ids:
            continue
        for entry in policy.denied_sources:
            # An explicit denial by any policy that applies overrides every allow.
            if any(_covers(entry, each.denied_sources) for each in always):
                continue
            overlaps = overlaps_with([entry])
            if by := next((e for e in always if any(map(overlaps, e.allowed_sources))), None):
                yield Escape(policy, "denied_sources", entry, by)
        for task in policy.denied_tasks:
            if any(task in each.denied_tasks for each in always):
                continue
            if by := next((e for e in always if _allows_task(e, task)), None):
                yield Escape(policy, "denied_tasks", task, by)


def _allows_task(policy: Policy, task: str) -> bool:
    lets = not policy.allowed_tasks or task in policy.allowed_tasks
    return bool(policy.allowed_sources) and lets


def _covers(entry: str, denied: Sequence[str]) -> bool:
    """Return whether one entry of `denied` matches everything that `entry` matches. Compares only
    equal texts and a `*` at the end, so it may miss some."""
    return any(
        each == entry
        or (each.endswith("*") and not is_pattern(each[:-1]) and entry.startswith(each[:-1]))
        for each in denied
    )
