"""Where two sets of policies decide differently: every request that one allows and the other does
not, and no other.

A row is a product of agents, tasks, sources and levels, and exact: everything that it matches
differs in the stated direction. Both lists are empty exactly if both sets decide every request
alike, as far as checks 6 to 10 go.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

from policies.analysis.access import Access, Agent, Space, Task, space
from policies.analysis.names import NameClass
from policies.definitions.model import Policy

Agents = frozenset[Agent]
Tasks = frozenset[Task]
Sources = frozenset[NameClass]
SourceEffect = tuple[int, int]

Member = TypeVar("Member", bound=Hashable)
Effect = TypeVar("Effect", bound=Hashable)


class Change(NamedTuple):
    """Requests whose answer changes. `levels` are counts from the lowest: those from `levels[0]`
    up to and without `levels[1]` change."""

    agent_role: str
    widened: bool
    agents: Agents
    tasks: Tasks
    sources: Sources
    levels: tuple[int, int]


class RoleDifference(NamedTuple):
    """The changes of one role, and the space in which they are."""

    space: Space
    changes: tuple[Change, ...]


def difference(old: Iterable[Policy], new: Iterable[Policy]) -> dict[str, RoleDifference]:
    """The changes from `old` to `new` of each role that has some. Raises `TooManyClasses`."""
    before, after = by_role(old), by_role(new)
    found = {}
    for role in sorted({*before, *after}):
        was, is_now = before.get(role, ()), after.get(role, ())
        if _alike(was, is_now):
            continue
        one = role_difference(role, was, is_now)
        if one.changes:
            found[role] = one
    return found


def by_role(policies: Iterable[Policy]) -> dict[str, list[Policy]]:
    found: dict[str, list[Policy]] = defaultdict(list)
    for each in policies:
        found[each.agent_role].append(each)
    return found


def role_difference(role: str, old: Sequence[Policy], new: Sequence[Policy]) -> RoleDifference:
    """The changes of one role."""
    over = space((*old, *new))
    before, after = Access(old, over), Access(new, over)

    def grouped(
        members: Sequence[Member], effect: Callable[[Access, Member], Effect]
    ) -> dict[tuple[Effect, Effect], frozenset[Member]]:
        groups: dict[tuple[Effect, Effect], list[Member]] = defaultdict(list)
        for each in members:
            groups[effect(before, each), effect(after, each)].append(each)
        return {key: frozenset(group) for key, group in groups.items()}

    agents = grouped(over.agents, Access.agent_effect)
    tasks = grouped(over.tasks, Access.task_effect)
    sources = grouped(over.sources, Access.source_effect)
    cells: dict[tuple[bool, tuple[int, int]], dict[tuple[Agents, Tasks], set[NameClass]]]
    cells = defaultdict(lambda: defaultdict(set))
    for agent, by_agent in agents.items():
        # Most policies admit other agents, so that most sources are alike to this one.
        alike: dict[tuple[SourceEffect, SourceEffect], set[NameClass]] = defaultdict(set)
        for (one, other), its_sources in sources.items():
            alike[_within(one, agent[0]), _within(other, agent[1])] |= its_sources
        for (task, by_task), (source, by_source) in product(tasks.items(), alike.items()):
            was = before.levels(agent[0], task[0], source[0])
            is_now = after.levels(agent[1], task[1], source[1])
            if was != is_now:
                levels = (was, is_now) if was < is_now else (is_now, was)
                cells[was < is_now, levels][by_agent, by_task] |= by_source
    return RoleDifference(
        over,
        tuple(
            Change(role, widened, *row, levels)
            for (widened, levels), cell in sorted(cells.items(), key=lambda each: each[0])
            for row in joined(cell)
        ),
    )


def _within(source: SourceEffect, admitted: int) -> SourceEffect:
    return source[0] & admitted, source[1] & admitted


def joined(
    cells: Mapping[tuple[Agents, Tasks], Iterable[NameClass]],
) -> list[tuple[Agents, Tasks, Sources]]:
    """The same cells as fewer products: agents with the same tasks and sources together, then tasks
    with the same agents and sources."""
    tasks_of: dict[tuple[Tasks, Sources], set[Agent]] = defaultdict(set)
    for (agents, tasks), sources in cells.items():
        tasks_of[tasks, frozenset(sources)] |= agents
    agents_of: dict[tuple[Agents, Sources], set[Task]] = defaultdict(set)
    for (tasks, its_sources), its_agents in tasks_of.items():
        agents_of[frozenset(its_agents), its_sources] |= tasks
    return [
        (agents, frozenset(its_tasks), sources)
        for (agents, sources), its_tasks in agents_of.items()
    ]


def _alike(old: Sequence[Policy], new: Sequence[Policy]) -> bool:
    """Whether the same bodies are on both sides, so that nothing has to be analysed."""
    return len(old) == len(new) and {_body(each) for each in old} == {_body(each) for each in new}


def _body(policy: Policy) -> tuple[object, ...]:
    return (
        policy.name,
        policy.max_sensitivity,
        frozenset(policy.allowed_sources),
        frozenset(policy.denied_sources),
        frozenset(policy.allowed_tasks),
        frozenset(policy.denied_tasks),
        frozenset(policy.permitted_agent_ids),
    )
