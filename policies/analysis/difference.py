"""Finds where two sets of policies decide differently: exactly the requests that one allows and the
other does not.

A change is a product of sets of agents, tasks, sources and levels. It is exact: every request in it
differs, in the stated direction. There is no change exactly if both sets decide every request
alike, as far as checks 6 to 10 go.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from policies.analysis.access import Access, AccessQuery, Space
from policies.analysis.names import MAX_STEPS
from policies.definitions.model import Policy


class Change(NamedTuple):
    """A group of requests that only one of two sets of policies allows. `widened` says that the new
    one does. Agents, tasks and sources are bit masks (`access.py`). `levels` is a half-open range
    of ranks: the levels from `levels[0]` up to `levels[1]`, exclusive, change."""

    agent_role: str
    widened: bool
    agents: int
    tasks: int
    sources: int
    levels: tuple[int, int]


class RoleDifference(NamedTuple):
    """The changes of one role, and the space to which their bit masks refer."""

    space: Space
    changes: tuple[Change, ...]


def difference(
    old: Iterable[Policy], new: Iterable[Policy], steps: int = MAX_STEPS
) -> dict[str, RoleDifference]:
    """Return the changes from the policies `old` to `new`, for each role that has any. Raises
    `TooManyClasses` if a role takes more than `steps`."""
    before, after = by_role(old), by_role(new)
    found = {}
    for role in sorted({*before, *after}):
        was, is_now = before.get(role, ()), after.get(role, ())
        if _alike(was, is_now):
            continue
        one = role_difference(role, was, is_now, steps)
        if one.changes:
            found[role] = one
    return found


def by_role(policies: Iterable[Policy]) -> dict[str, list[Policy]]:
    found: dict[str, list[Policy]] = defaultdict(list)
    for each in policies:
        found[each.agent_role].append(each)
    return found


def role_difference(
    role: str, old: Sequence[Policy], new: Sequence[Policy], steps: int = MAX_STEPS
) -> RoleDifference:
    """Return the changes of one role from its policies `old` to `new`. Raises `TooManyClasses`."""
    access = Access(old, new, query=AccessQuery(steps=steps))
    before, after = access.sides
    found: dict[tuple[bool, tuple[int, int]], dict[tuple[int, int], int]]
    found = defaultdict(lambda: defaultdict(int))
    for calls in access.calls():
        if not calls.admitting & (before ^ after):
            continue  # the same policies apply
        sources = _changed(access.allowed(calls, before), access.allowed(calls, after))
        for direction, those in sources.items():
            found[direction][calls.agents, calls.tasks] |= those
    changes = tuple(
        Change(role, widened, *row, levels)
        for (widened, levels), sources in sorted(found.items())
        for row in joined(sources)
    )
    return RoleDifference(access.space, changes)


def _changed(old: list[int], new: list[int]) -> dict[tuple[bool, tuple[int, int]], int]:
    """Return the sources for which more or fewer levels are allowed than before. They are keyed by
    whether it is more, and by the range of levels that changes. `old` and `new` hold the allowed
    sources of each level."""
    if old == new:
        return {}
    was, is_now = ([-1, *each, 0] for each in (old, new))
    found: dict[tuple[bool, tuple[int, int]], int] = {}
    for one, other in permutations(range(len(old) + 1), 2):
        exactly = was[one] & ~was[one + 1] & is_now[other] & ~is_now[other + 1]
        if exactly:
            found[one < other, (min(one, other), max(one, other))] = exactly
    return found


def joined(sources: Mapping[tuple[int, int], int]) -> list[tuple[int, int, int]]:
    """Return `sources`, which is keyed by agents and tasks, as few products of agents, tasks and
    sources: agents with the same tasks and sources are joined first, then tasks with the same
    agents and sources."""
    agents_of: dict[tuple[int, int], int] = defaultdict(int)
    for (agents, tasks), those in sources.items():
        agents_of[tasks, those] |= agents
    tasks_of: dict[tuple[int, int], int] = defaultdict(int)
    for (tasks, those), agents in agents_of.items():
        tasks_of[agents, those] |= tasks
    return [(agents, tasks, those) for (agents, those), tasks in tasks_of.items()]


def _alike(old: Sequence[Policy], new: Sequence[Policy]) -> bool:
    """Return whether both sides have policies with the same content, so that nothing has to be
    analysed."""
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
