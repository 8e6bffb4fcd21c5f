"""What the policies of one role allow: which policies allow and deny each class of requests.

Identity and sessions (checks 1 to 5) are not part of it: they narrow further who may ask. The
combination of several policies is that of `policies/evaluate.py`, which a property test compares
with this for every request over small alphabets.

Sets are numbers: of agents, tasks and sources, bit i stands for member i of the space; of policies,
for policy i of `Access.policies`.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from policies.analysis.names import Budget, NameClass, NameClasses, members, name_classes
from policies.definitions.model import RANK, SENSITIVITIES, Policy

Agent = NameClass | None
"""A class of agent ids; None is the call without one."""


class Other(Enum):
    """Every task that no policy names."""

    OTHER = "other"


OTHER = Other.OTHER
Task = str | None | Other
"""A task by its name; None is the call without one."""

ABSENT_AGENT = 1
"""The call without an agent, in a set of agents."""

Effect = TypeVar("Effect", bound=Hashable)


class Asked(NamedTuple):
    """What a question is about, so that the classes tell it apart: patterns and names of agents
    and sources, names of tasks."""

    agents: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


NOTHING = Asked()


class Space:
    """Everything that requests by one role can differ in, as far as its policies tell."""

    def __init__(self, policies: Iterable[Policy], asked: Asked) -> None:
        every = tuple(policies)
        agents = [asked.agents, *(p.permitted_agent_ids for p in every)]
        lists = (each for p in every for each in (p.allowed_sources, p.denied_sources))
        sources = [asked.sources, *lists]
        self.budget = Budget([*sources, *agents])
        self.agent_names = name_classes(agents, self.budget)
        self.source_names = name_classes(sources, self.budget)
        named = {*asked.tasks, *(t for p in every for t in (*p.allowed_tasks, *p.denied_tasks))}
        self.agents: Sequence[Agent] = (None, *self.agent_names.classes)
        self.tasks: Sequence[Task] = (None, OTHER, *sorted(named))
        self.sources: Sequence[NameClass] = self.source_names.classes

    def agents_of(self, entries: Iterable[str]) -> int:
        """The agents that one of the entries matches, which the space was asked about."""
        return self.agent_names.matched_by(entries) << 1

    def named_agents(self, agents: int) -> int:
        """Those of a set of agents that have a name, as classes of `agent_names`."""
        return agents >> 1

    def tasks_of(self, names: Iterable[str | None]) -> int:
        chosen = frozenset(names)
        return sum(1 << at for at, task in enumerate(self.tasks) if task in chosen)

    def sources_of(self, entries: Iterable[str]) -> int:
        return self.source_names.matched_by(entries)


class Cell(NamedTuple):
    """Requests that all policies treat alike, at every level: a product of agents, tasks, sources.

    `passing` are the policies whose allowing lists have all three. `denied_task` and
    `denied_source` are those that admit the agents and deny the tasks, or the sources.
    """

    agents: int
    tasks: int
    sources: int
    passing: int
    denied_task: int
    denied_source: int

    @property
    def denying(self) -> int:
        return self.denied_task | self.denied_source


class Access:
    """What the policies of a role allow. With several `sides`, such as before and after a change,
    the first policies are those of the first side."""

    def __init__(self, *sides: Iterable[Policy], asked: Asked = NOTHING) -> None:
        """Raises `TooManyClasses`."""
        self.policies: list[Policy] = []
        self.sides: list[int] = []
        for side in sides:
            first = len(self.policies)
            # By name, so that the lowest bit is the policy that a decision names.
            self.policies += sorted(side, key=lambda policy: policy.name)
            self.sides.append((1 << len(self.policies)) - (1 << first))
        self.space = Space(self.policies, asked)
        self._at_least = [0] * len(SENSITIVITIES)
        for at, policy in enumerate(self.policies):
            for rank in range(RANK[policy.max_sensitivity] + 1):
                self._at_least[rank] |= 1 << at

    def cells(
        self, agents: int | None = None, tasks: int | None = None, sources: int | None = None
    ) -> Iterator[Cell]:
        """All requests, or those by `agents` for `tasks` about `sources`. Raises
        `TooManyClasses`."""
        by_agent = _grouped(self._admitting(), agents)
        by_task = _grouped(self._task_effects(), tasks)
        by_source = _grouped(self._source_effects(), sources)
        spend = self.space.budget.spend
        for admitting, those_agents in by_agent.items():
            spend(len(by_task) + len(by_source))
            # Most policies admit other agents, so that most tasks and sources are alike to these.
            some_tasks = _within(by_task, admitting)
            some_sources = _within(by_source, admitting)
            spend(len(some_tasks) * len(some_sources))
            for (allowed_task, denied_task), those_tasks in some_tasks.items():
                for (allowed, denied), those_sources in some_sources.items():
                    yield Cell(
                        those_agents,
                        those_tasks,
                        those_sources,
                        allowed_task & allowed,
                        denied_task,
                        denied,
                    )

    def allowing(self, cell: Cell, side: int = -1) -> int:
        """The policies of a side that allow the cell's requests up to their own level."""
        # INVARIANT: an explicit denial by a policy that admits the agent overrides every allow.
        return 0 if cell.denying & side else cell.passing & side

    def levels(self, allowing: int) -> int:
        """How many levels, from the lowest, one of the policies allows."""
        for rank in range(len(SENSITIVITIES) - 1, -1, -1):
            if allowing & self._at_least[rank]:
                return rank + 1
        return 0

    def up_to(self, allowing: int, level: int) -> int:
        """Those of the policies that allow at least that many levels."""
        return allowing & self._at_least[level - 1]

    def deciding(self, allowing: int) -> tuple[str, ...]:
        """For each level that is allowed, the policy that a decision names: the first by name."""
        found = []
        for level in range(1, self.levels(allowing) + 1):
            able = self.up_to(allowing, level)
            found.append(self.policies[next(iter(members(able)))].name)
        return tuple(found)

    def _admitting(self) -> Iterator[int]:
        """For each agent, the policies that admit it."""
        everyone = 0
        for at, policy in enumerate(self.policies):
            everyone |= (not policy.permitted_agent_ids) << at
        named = _listing(self.space.agent_names, (p.permitted_agent_ids for p in self.policies))
        yield everyone
        for each in self.space.agent_names.classes:
            yield everyone | _matching(named, each)

    def _task_effects(self) -> Iterator[tuple[int, int]]:
        """For each task, the policies whose allowing list has it, and those that deny it."""
        allowing: dict[Task, int] = defaultdict(int)
        denying: dict[Task, int] = defaultdict(int)
        every = 0
        for at, policy in enumerate(self.policies):
            every |= (not policy.allowed_tasks) << at
            for task in {*policy.allowed_tasks}:
                allowing[task] |= 1 << at
            for task in {*policy.denied_tasks}:
                denying[task] |= 1 << at
        allowing[None] = -1  # a call without a task
        for each in self.space.tasks:
            yield every | allowing[each], denying[each]

    def _source_effects(self) -> Iterator[tuple[int, int]]:
        """For each class of sources, the policies that allow it, and that deny it."""
        names = self.space.source_names
        allowing = _listing(names, (policy.allowed_sources for policy in self.policies))
        denying = _listing(names, (policy.denied_sources for policy in self.policies))
        for each in names.classes:
            yield _matching(allowing, each), _matching(denying, each)


def _listing(names: NameClasses, lists: Iterable[Sequence[str]]) -> list[int]:
    """For each group of `names`, the lists that have it."""
    found = [0] * len(names.groups)
    for at, entries in enumerate(lists):
        for group in {names.group_of[entry] for entry in entries}:
            found[group] |= 1 << at
    return found


def _matching(listing: Sequence[int], names: NameClass) -> int:
    """The lists of which an entry matches these names."""
    found = 0
    for group in members(names.matched):
        found |= listing[group]
    return found


def _grouped(effects: Iterable[Effect], among: int | None) -> dict[Effect, int]:
    """The members of each effect, as bits; only those `among`, if it is given."""
    groups: dict[Effect, list[int]] = defaultdict(list)
    for at, effect in enumerate(effects):
        if among is None or among >> at & 1:
            groups[effect].append(at)
    return {effect: as_bits(those) for effect, those in groups.items()}


def as_bits(numbers: Iterable[int]) -> int:
    """The set of these numbers."""
    found = bytearray()
    for each in numbers:
        byte, bit = divmod(each, 8)
        if byte >= len(found):
            found.extend(bytes(byte + 1 - len(found)))
        found[byte] |= 1 << bit
    return int.from_bytes(found, "little")


def _within(effects: Mapping[tuple[int, int], int], admitting: int) -> dict[tuple[int, int], int]:
    """The members of each effect that the policies `admitting` have."""
    found: dict[tuple[int, int], int] = {}
    for (allowed, denied), those in effects.items():
        effect = allowed & admitting, denied & admitting
        found[effect] = found.get(effect, 0) | those
    return found
