"""Makes a matrix of roles and sources: a cell says up to which level the policies of a role allow a
source, and on what that depends.

The sources are the columns, as policies write them: a pattern stands for all names that it matches.
Identity and sessions (checks 1 to 5) are not part of it (`access.py`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

from policies.analysis.access import Access, AccessQuery
from policies.analysis.names import MAX_STEPS, Budget, TooManyClasses
from policies.analysis.patterns import meet
from policies.definitions.model import RANK, SENSITIVITIES, Policy, Sensitivity

AGENTS, TASKS, SOURCES = "agents", "tasks", "sources"

_Allowed = tuple[int, ...]
"""The allowed sources, as one set for each level, the lowest first."""
_Tables = Sequence[Mapping[_Allowed, int]]
"""For each group of agents, the tasks for which the policies allow the same, keyed by what they
allow."""


class Cell(NamedTuple):
    """The levels at which a role may read one source or pattern.

    `level` is the highest level at which some request is allowed, `always` the highest at which
    every request is: by any agent, for any task, of any name that the pattern matches. Both are
    None if there is no such level. Where they differ, `depends_on` says on what it depends whether
    a request at `level` is allowed: `agents`, `tasks`, `sources`. For each of these there is a pair
    of requests that differ in nothing else, and only one of the two is allowed.
    """

    level: Sensitivity | None
    always: Sensitivity | None
    depends_on: tuple[str, ...]


def cells(policies: Sequence[Policy], columns: Sequence[str], steps: int = MAX_STEPS) -> list[Cell]:
    """Return one role's cells for the columns, in the columns' order. Raises `TooManyClasses` if
    that takes more than `steps`."""
    access = Access(policies, query=AccessQuery(each_source=tuple(columns), steps=steps))
    tables: dict[int, dict[_Allowed, int]] = defaultdict(lambda: defaultdict(int))
    for calls in access.calls():
        tables[calls.agents][tuple(access.allowed(calls))] |= calls.tasks
    every = [allowed for table in tables.values() for allowed in table]
    some = [reduce(or_, each) for each in zip(*every, strict=True)]
    always = [reduce(and_, each) for each in zip(*every, strict=True)]
    found = []
    for column in columns:
        span = access.space.sources_of((column,))
        access.space.budget.spend(len(every))
        level = _highest([bool(span & each) for each in some])
        certain = _highest([bool(span) and not span & ~each for each in always])
        depends = (
            () if level == certain else _depends_on([*tables.values()], span, RANK[level or ""])
        )
        found.append(Cell(level, certain, depends))
    return found


def _highest(allowed: Sequence[bool]) -> Sensitivity | None:
    """Return the highest level that is allowed, None if none is. `allowed` has a truth value for
    each level, the lowest first; an allowed level allows those below it too."""
    count = sum(allowed)
    return SENSITIVITIES[count - 1] if count else None


def _depends_on(tables: _Tables, span: int, rank: int) -> tuple[str, ...]:
    """Return on which of agents, tasks and sources it depends whether a request for one of the
    sources `span` is allowed at the level of this rank."""
    by_agents: list[dict[int, int]] = []
    for table in tables:
        # Other levels and other sources tell tasks apart that are alike here.
        tasks: dict[int, int] = defaultdict(int)
        for allowed, those in table.items():
            tasks[allowed[rank] & span] |= those
        by_agents.append(dict(tasks))
    parts = {part for tasks in by_agents for part in tasks}
    depends = {
        AGENTS: any(tasks != by_agents[0] for tasks in by_agents),
        TASKS: any(len(tasks) > 1 for tasks in by_agents),
        SOURCES: any(part not in (0, span) for part in parts),
    }
    return tuple(name for name, applies in depends.items() if applies)


class Columns(NamedTuple):
    """The choice of sources to show as columns: at most `most` of them, in order of their text,
    beginning after `after`. With `pattern`, only those that can match a name that it matches; the
    pattern itself is then the first column."""

    pattern: str | None
    after: str | None
    most: int


def matrix(
    roles: Mapping[str, Sequence[Policy]], wanted: Columns, steps: int, *, strict: bool
) -> dict[str, Any]:
    """Return the matrix as `{sources, next_source, roles: [{agent_role, cells: [{level, always,
    depends_on}], fault}]}`. `sources` are the columns: the sources that the roles' policies name,
    as they are written. `next_source` is the last of them if there are more, else null.

    Each role may take `steps` of work. If a role takes more, `TooManyClasses` is raised with
    `strict`; otherwise its `fault` has the message, and its cells are null.
    """
    columns, more = _columns(roles, wanted, steps)
    rows: list[dict[str, Any]] = []
    for role, policies in roles.items():
        row: dict[str, Any] = {"agent_role": role, "cells": None, "fault": None}
        try:
            row["cells"] = [cell._asdict() for cell in cells(policies, columns, steps)]
        except TooManyClasses as error:
            if strict:
                raise
            row["fault"] = str(error)
        rows.append(row)
    return {"sources": columns, "next_source": columns[-1] if more else None, "roles": rows}


def _columns(
    roles: Mapping[str, Sequence[Policy]], wanted: Columns, steps: int
) -> tuple[list[str], bool]:
    policies = [each for every in roles.values() for each in every]
    written = {
        entry for each in policies for entry in (*each.allowed_sources, *each.denied_sources)
    }
    first: list[str] = []
    if wanted.pattern is not None:
        budget = Budget([[wanted.pattern]], steps * len(roles))
        written = {each for each in written if meet(each, wanted.pattern, budget.spend)}
        written.discard(wanted.pattern)
        first = [wanted.pattern]
    if wanted.after is not None:
        written = {each for each in written if each > wanted.after}
        first = []
    found = [*first, *sorted(written)]
    return found[: wanted.most], len(found) > wanted.most


def covering(entries: Sequence[str], pattern: str | None) -> list[str]:
    """Return those entries of a policy that can match a name that `pattern` matches; all entries if
    `pattern` is None. An entry is included too if it would take too long to find out."""
    if pattern is None:
        return list(entries)
    found = []
    for entry in entries:
        try:
            if meet(entry, pattern, Budget([[entry]]).spend):
                found.append(entry)
        except TooManyClasses:
            found.append(entry)
    return found
