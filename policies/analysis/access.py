"""What the policies of one role allow: for each class of agents, of tasks and of sources, up to
which level.

Identity and sessions (checks 1 to 5) are not part of it: they narrow further who may ask. The
combination of several policies is that of `policies/evaluate.py`, which a property test compares
with this for every request over small alphabets.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from policies.analysis.names import NameClass, NameClasses, name_classes
from policies.definitions.model import RANK, SENSITIVITIES, Policy

Agent = NameClass | None
"""A class of agent ids; None is the call without one."""


class Other(Enum):
    """Every task that no policy names."""

    OTHER = "other"


OTHER = Other.OTHER
Task = str | None | Other
"""A task by its name; None is the call without one."""


class Space(NamedTuple):
    """Everything that requests by one role can differ in, as far as these policies tell."""

    agents: tuple[Agent, ...]
    tasks: tuple[Task, ...]
    sources: tuple[NameClass, ...]
    agent_names: NameClasses
    source_names: NameClasses

    def agents_of(self, entries: Iterable[str]) -> tuple[NameClass, ...]:
        """The agents that one of the entries matches, which the space was asked about."""
        return self.agent_names.matched_by(entries)

    def sources_of(self, entries: Iterable[str]) -> tuple[NameClass, ...]:
        return self.source_names.matched_by(entries)


class Asked(NamedTuple):
    """What a question is about, so that the classes tell it apart: patterns and names of agents
    and sources, names of tasks."""

    agents: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


NOTHING = Asked()


def space(policies: Iterable[Policy], asked: Asked = NOTHING) -> Space:
    """The space that all of `policies`, of one role, span together. Raises `TooManyClasses`."""
    every = tuple(policies)
    agents, tasks, sources = map(list, asked)
    for each in every:
        agents += each.permitted_agent_ids
        sources += each.allowed_sources + each.denied_sources
        tasks += each.allowed_tasks + each.denied_tasks
    agent_names, source_names = name_classes(agents), name_classes(sources)
    return Space(
        (None, *agent_names.classes),
        (None, OTHER, *sorted(set(tasks))),
        source_names.classes,
        agent_names,
        source_names,
    )


class Access:
    """What one set of policies allows in `over`, a space that it spans, maybe with others. Policies
    are bits, the first by name the lowest."""

    def __init__(self, policies: Iterable[Policy], over: Space) -> None:
        self.policies: Sequence[Policy] = sorted(policies, key=lambda each: each.name)
        bits = [(1 << at, each) for at, each in enumerate(self.policies)]
        self._at_least = [
            sum(bit for bit, each in bits if RANK[each.max_sensitivity] >= rank)
            for rank in range(len(SENSITIVITIES))
        ]
        everyone = sum(bit for bit, each in bits if not each.permitted_agent_ids)
        admit = _listing(over.agent_names, ((bit, each.permitted_agent_ids) for bit, each in bits))
        self.admits = {
            agent: everyone if agent is None else everyone | _matching(admit, agent)
            for agent in over.agents
        }
        allow = _listing(over.source_names, ((bit, each.allowed_sources) for bit, each in bits))
        deny = _listing(over.source_names, ((bit, each.denied_sources) for bit, each in bits))
        self.allows = {each: _matching(allow, each) for each in over.sources}
        self.denies = {each: _matching(deny, each) for each in over.sources}
        self.permits_task = {
            task: sum(bit for bit, each in bits if _permits(each, task)) for task in over.tasks
        }
        self.denies_task = {
            task: sum(bit for bit, each in bits if task in each.denied_tasks) for task in over.tasks
        }

    def agent_effect(self, agent: Agent) -> int:
        """What it matters which agent asks. Agents of equal effect are decided alike."""
        return self.admits[agent]

    def task_effect(self, task: Task) -> tuple[int, int]:
        return self.permits_task[task], self.denies_task[task]

    def source_effect(self, source: NameClass) -> tuple[int, int]:
        return self.allows[source], self.denies[source]

    def levels(self, agent: int, task: tuple[int, int], source: tuple[int, int]) -> int:
        """How many levels, from the lowest, are allowed; the arguments are effects."""
        # INVARIANT: an explicit denial by a policy that admits the agent overrides every allow.
        if agent & (task[1] | source[1]):
            return 0
        passing = agent & task[0] & source[0]
        if not passing:
            return 0
        for rank in range(len(SENSITIVITIES) - 1, -1, -1):
            if passing & self._at_least[rank]:
                return rank + 1
        return 0

    def deciding(self, agent: int, task: tuple[int, int], source: tuple[int, int]) -> list[str]:
        """For each level that is allowed, the policy that allows it: the first by name."""
        passing = agent & task[0] & source[0]
        found = []
        for rank in range(self.levels(agent, task, source)):
            able = passing & self._at_least[rank]
            found.append(self.policies[(able & -able).bit_length() - 1].name)
        return found


def _listing(names: NameClasses, lists: Iterable[tuple[int, Sequence[str]]]) -> list[int]:
    """For each entry of `names`, the policies whose list has it."""
    place = {entry: at for at, entry in enumerate(names.entries)}
    found = [0] * len(names.entries)
    for bit, entries in lists:
        for entry in entries:
            found[place[entry]] |= bit
    return found


def _matching(listing: Sequence[int], names: NameClass) -> int:
    """The policies of which an entry matches these names."""
    found, matched = 0, names.matched
    while matched:
        lowest = matched & -matched
        found |= listing[lowest.bit_length() - 1]
        matched ^= lowest
    return found


def _permits(policy: Policy, task: Task) -> bool:
    if task is None:
        return True
    if task in policy.denied_tasks:
        return False
    return not policy.allowed_tasks or task in policy.allowed_tasks
