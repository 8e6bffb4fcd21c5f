"""Writes what the analysis found as rows of JSON (`policy-tools.md` section 7): agents, tasks,
sources and levels, with an example for each change that the core itself decides on both sides.

Everything that a row matches is as the row says, and nothing is left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import product
from typing import Any

from policies.analysis.access import OTHER, Access, Agent, Asked, Space, Task, space
from policies.analysis.difference import Agents, Change, RoleDifference, Tasks, joined
from policies.analysis.examples import body, decided, example
from policies.analysis.names import NameClass
from policies.analysis.regions import EVERYTHING, Region, Writer, shortest
from policies.definitions.model import RANK, SENSITIVITIES, Policy, Sensitivity
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role

ABSENT = "absent"

Wire = dict[str, Any]


class RowWriter:
    """Writes rows about requests in `space`."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._agents = Writer(space.agent_names)
        self._sources = Writer(space.source_names)

    def row(self, role: str, agents: Set[Agent], tasks: Set[Task], sources: Set[NameClass]) -> Wire:
        """The members that all rows have, but for the levels."""
        return {
            "agent_role": role,
            "agents": [*_absent(agents), *self._named(agents)],
            "tasks": [*_absent(tasks), *self._tasks(tasks)],
            "sources": list(_items(self._sources.written(sources), str)),
        }

    def _named(self, agents: Set[Agent]) -> Iterator[Any]:
        named = frozenset(each for each in agents if each is not None)
        return _items(self._agents.written(named), _agent)

    def _tasks(self, tasks: Set[Task]) -> Iterator[Any]:
        named = [each for each in self._space.tasks if isinstance(each, str)]
        if OTHER not in tasks:
            yield from (_task(each) for each in named if each in tasks)
            return
        besides = [_task(each) for each in named if each not in tasks]
        yield {"any": EVERYTHING, "except": besides} if besides else EVERYTHING


def _items(regions: Iterable[Region], written: Callable[[str], Any]) -> Iterator[Any]:
    """Regions as items of a row: patterns and names, or an object with exceptions."""
    for region in regions:
        some, besides = ([written(each) for each in side] for side in region)
        if besides:
            yield {"any": some, "except": besides}
        else:
            yield from some


def _agent(entry: str) -> str | Wire:
    """A pattern, or an agent's id."""
    return {"name": entry} if entry == ABSENT else entry


def _absent(members: Set[object]) -> list[str]:
    return [ABSENT] if None in members else []


def _task(name: str) -> str | Wire:
    """A task by its name; what would be read as something else as an object."""
    return {"name": name} if name in (ABSENT, EVERYTHING) else name


def difference_rows(
    differences: Mapping[str, RoleDifference],
    old: dict[str, list[Policy]],
    new: dict[str, list[Policy]],
) -> Wire:
    """`{newly_allowed: [row], newly_denied: [row]}`. Each row has an example, an evaluate body, and
    what the core decides about it `before` and `after`."""
    found: Wire = {"newly_allowed": [], "newly_denied": []}
    for role, each in differences.items():
        writer = RowWriter(each.space)
        before, after = _compiled(role, old), _compiled(role, new)
        for change in each.changes:
            request = _example(change, each.space)
            row = writer.row(role, change.agents, change.tasks, change.sources) | {
                "levels": list(SENSITIVITIES[slice(*change.levels)]),
                "example": body(request),
                "before": decided(request, before),
                "after": decided(request, after),
            }
            found["newly_allowed" if change.widened else "newly_denied"].append(row)
    return found


def _compiled(role: str, policies: dict[str, list[Policy]]) -> Role | None:
    return compile_role(role, policies[role]) if role in policies else None


def _example(change: Change, over: Space) -> Retrieval:
    """The simplest request that the change is about."""
    named = [each for each in change.agents if each is not None]
    tasks: list[Task] = [*sorted(each for each in change.tasks if isinstance(each, str)), OTHER]
    return example(
        change.agent_role,
        None if None in change.agents else shortest(named),
        None if None in change.tasks else tasks[0],
        shortest(change.sources),
        SENSITIVITIES[change.levels[0]],
        over,
    )


def access_rows(
    role: str, policies: Sequence[Policy], asked: Asked, level: Sensitivity | None = None
) -> list[Wire]:
    """What the policies of a role allow, as far as it concerns what is `asked`: rows with
    `policies`, the names of those that allow it. With `level`, only what is allowed at it."""
    over = space(policies, asked)
    access = Access(policies, over)
    agents = over.agents_of(asked.agents) if asked.agents else over.agents
    sources = over.sources_of(asked.sources) if asked.sources else over.sources
    tasks = asked.tasks or over.tasks
    cells: dict[tuple[str, ...], dict[tuple[Agents, Tasks], set[NameClass]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for agent, task, source in product(agents, tasks, sources):
        deciding = access.deciding(
            access.admits[agent], access.task_effect(task), access.source_effect(source)
        )
        if level is not None:
            deciding = deciding[RANK[level] :][:1]
        if deciding:
            cells[tuple(deciding)][frozenset((agent,)), frozenset((task,))].add(source)
    writer = RowWriter(over)
    return [
        writer.row(role, *row)
        | {
            "levels": [level] if level else list(SENSITIVITIES[: len(deciding)]),
            "policies": list(dict.fromkeys(deciding)),
        }
        for deciding, cell in sorted(cells.items())
        for row in joined(cell)
    ]
