"""Writes what the analysis found as rows of JSON (`TOOLS.md`, Rows): agents, tasks, sources and
levels, with an example for each change that the core itself decides on both sides.

Everything that a row matches is as the row says, and nothing is left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from policies.analysis.access import (
    ABSENT_AGENT,
    OTHER,
    Access,
    AccessQuery,
    Space,
    Task,
    body,
    decided,
    example,
)
from policies.analysis.callers import Callers
from policies.analysis.difference import RoleDifference, joined
from policies.analysis.names import as_bits, members
from policies.analysis.regions import EVERYTHING, Region, Writer
from policies.definitions.model import RANK, SENSITIVITIES, Policy, Sensitivity
from policies.sets.role import Role, compile_role

ABSENT = "absent"

Wire = dict[str, Any]


class RowWriter:
    """Writes rows about requests whose sets belong to `space`."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._agents = Writer(space.agent_names)
        self._sources = Writer(space.source_names)

    def row(self, role: str, agents: int, tasks: int, sources: int) -> Wire:
        """Return the members that every row has, except the levels. The sets are bit masks of the
        writer's space."""
        named = self._agents.written(self._space.named_agents(agents))
        absent = [ABSENT] if agents & ABSENT_AGENT else []
        return {
            "agent_role": role,
            "agents": [*absent, *_items(named, _agent)],
            "tasks": list(self._tasks({self._space.tasks[each] for each in members(tasks)})),
            "sources": list(_items(self._sources.written(sources), str)),
        }

    def _tasks(self, tasks: Set[Task]) -> Iterator[Any]:
        if None in tasks:
            yield ABSENT
        named = [each for each in self._space.tasks if isinstance(each, str)]
        if OTHER not in tasks:
            yield from (_task(each) for each in named if each in tasks)
            return
        besides = [_task(each) for each in named if each not in tasks]
        yield {"any": EVERYTHING, "except": besides} if besides else EVERYTHING


def _items(regions: Iterable[Region], written: Callable[[str], Any]) -> Iterator[Any]:
    """Yield regions as items of a row: each pattern and name by itself, or, with exceptions, an
    object `{any, except}`."""
    for region in regions:
        some, besides = ([written(each) for each in side] for side in region)
        if besides:
            yield {"any": some, "except": besides}
        else:
            yield from some


def _agent(entry: str) -> str | Wire:
    """Return a pattern or an agent's id as an item of a row. An id that would be read as `absent`
    becomes an object."""
    return {"name": entry} if entry == ABSENT else entry


def _task(name: str) -> str | Wire:
    """Return a task's name as an item of a row. A name that would be read as `absent` or `*`
    becomes an object."""
    return {"name": name} if name in (ABSENT, EVERYTHING) else name


def difference_rows(
    differences: Mapping[str, RoleDifference],
    old: dict[str, list[Policy]],
    new: dict[str, list[Policy]],
) -> Wire:
    """Return the differences as `{newly_allowed: [row], newly_denied: [row]}`. `old` and `new` are
    the policies of each role. Each row has an `example`, which is the body of an evaluation, and
    what the core decides about it `before` and `after`."""
    found: Wire = {"newly_allowed": [], "newly_denied": []}
    for role, each in differences.items():
        writer = RowWriter(each.space)
        before, after = _compiled(role, old), _compiled(role, new)
        for change in each.changes:
            sets = change.agents, change.tasks, change.sources
            request = example(role, *sets, SENSITIVITIES[change.levels[0]], each.space)
            row = writer.row(role, *sets) | {
                "levels": list(SENSITIVITIES[slice(*change.levels)]),
                "example": body(request),
                "before": decided(request, before),
                "after": decided(request, after),
            }
            found["newly_allowed" if change.widened else "newly_denied"].append(row)
    return found


def _compiled(role: str, policies: dict[str, list[Policy]]) -> Role | None:
    return compile_role(role, policies[role]) if role in policies else None


def access_rows(
    role: str,
    policies: Sequence[Policy],
    query: AccessQuery,
    level: Sensitivity | None = None,
    callers: Callers | None = None,
) -> list[Wire]:
    """Return rows of what the policies of a role allow, as far as it concerns `query`;
    `policies` in a row names the policies that allow it. With `level`, only what is allowed at that
    level. Raises `TooManyClasses`.

    With `callers`, those of the role, only what one of them may read. Rows then have `agent_ids`,
    the registered agents among the row's agents, and `agents` holds `absent` only where a call may
    name no agent.
    """
    access = Access(policies, query=query)
    over = access.space
    agents = over.agents_of(query.agents) if query.agents else None
    registered: dict[int, list[str]] = {}
    if callers is not None:
        registered = over.agent_names.sorted_by_class(callers.agents)
        able = as_bits(registered) << 1 | (ABSENT_AGENT if callers.absent else 0)
        agents = able if agents is None else able & agents
    among = over.sources_of(query.sources) if query.sources else over.source_names.everything
    found: dict[tuple[str, ...], dict[tuple[int, int], int]]
    found = defaultdict(lambda: defaultdict(int))
    for calls in access.calls(
        agents,
        over.tasks_of(query.tasks) if query.tasks else None,
    ):
        for names, sources in access.deciding(calls, among).items():
            deciding = names if level is None else names[RANK[level] :][:1]
            if deciding:
                found[deciding][calls.agents, calls.tasks] |= sources
    writer = RowWriter(over)

    def ids(agents: int) -> Wire:
        if callers is None:
            return {}
        named = members(over.named_agents(agents))
        return {"agent_ids": sorted(name for each in named for name in registered[each])}

    return [
        writer.row(role, *row)
        | ids(row[0])
        | {
            "levels": [level] if level else list(SENSITIVITIES[: len(deciding)]),
            "policies": list(dict.fromkeys(deciding)),
        }
        for deciding, sources in sorted(found.items())
        for row in joined(sources)
    ]
