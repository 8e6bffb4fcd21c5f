"""Finds what the policies of one role allow: which policies allow and deny each class of requests,
and one request that stands for a class, with what the core decides about it.

Identity and sessions (checks 1 to 5) are not part of it: they narrow further who may ask. Several
policies are combined as in `policies/evaluate.py`; a property test compares the two for every
request over small alphabets.

Sets are integers used as bit masks: in a set of agents, tasks or sources, bit i stands for member i
of the `Space`; in a set of policies, for policy i of `Access.policies`.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, reduce
from itertools import accumulate, count
from operator import and_, or_
from typing import Any, NamedTuple, TypeVar

from policies.analysis.names import MAX_STEPS, Budget, NameClass, as_bits, members, name_classes
from policies.definitions.model import RANK, SENSITIVITIES, Policy, Sensitivity
from policies.definitions.wildcard import is_pattern
from policies.evaluate import evaluate_admitted
from policies.ground.canonical import MAX_IDENTIFIER
from policies.retrieval import Retrieval
from policies.sets.role import Role

Agent = NameClass | None
"""A class of agent ids that no policy tells apart; None stands for calls that name no agent."""


class Other(Enum):
    """Stands for every task that no policy names."""

    OTHER = "other"


OTHER = Other.OTHER
Task = str | None | Other
"""A task by its name; `OTHER` for every task that no policy names; None for calls that name no
task."""

ABSENT_AGENT = 1
"""The bit that stands for calls without an agent in a set of agents."""

Effect = TypeVar("Effect", bound=Hashable)


class AccessQuery(NamedTuple):
    """The names and patterns that a question mentions. The analysis sorts agents, tasks and sources
    into classes, and must not put two names into one class if something mentioned here matches only
    one of them. The sources in `each_source` are also told apart from one another. `steps` limits
    the work for the answer."""

    agents: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    each_source: tuple[str, ...] = ()
    steps: int = MAX_STEPS


_ANY_CALL = AccessQuery()


class Space:
    """All the requests that one role can make, divided into the agents, tasks and sources that its
    policies (and `query`) distinguish."""

    def __init__(self, every: Sequence[Policy], query: AccessQuery, *, apart: bool) -> None:
        agents: list[Sequence[str]] = [query.agents, *(p.permitted_agent_ids for p in every)]
        sources: list[Sequence[str]] = [query.sources, *((each,) for each in query.each_source)]
        sources += [p.allowed_sources for p in every]
        sources += [p.denied_sources for p in every]
        if apart:
            agents, sources = (
                [*lists, *([entry] for each in lists for entry in filter(is_pattern, each))]
                for lists in (agents, sources)
            )
        self.budget = Budget([*sources, *agents], query.steps)
        self.agent_names = name_classes(agents, self.budget)
        self.source_names = name_classes(sources, self.budget)
        tasks = {*query.tasks, *(t for p in every for t in (*p.allowed_tasks, *p.denied_tasks))}
        named = sorted(task for task in tasks if len(task) <= MAX_IDENTIFIER)
        self.agents: Sequence[Agent] = (None, *self.agent_names.classes)
        self.tasks: Sequence[Task] = (None, OTHER, *named)
        self.sources: Sequence[NameClass] = self.source_names.classes

    def agents_of(self, entries: Iterable[str]) -> int:
        """Return the set of agents that any of the entries matches. The entries must be from the
        policies' lists or from `query`."""
        return self.agents_named(self.agent_names.matched_by(entries))

    def named_agents(self, agents: int) -> int:
        """Return the agents of a set that have an id, as a set of classes of `agent_names`."""
        return agents >> 1

    def agents_named(self, classes: int) -> int:
        """Return a set of classes of `agent_names` as a set of agents: the reverse of
        `named_agents`."""
        return classes << 1

    def tasks_of(self, names: Iterable[str | None]) -> int:
        chosen = frozenset(names)
        return sum(1 << at for at, task in enumerate(self.tasks) if task in chosen)

    def sources_of(self, entries: Iterable[str]) -> int:
        return self.source_names.matched_by(entries)


class Calls(NamedTuple):
    """A group of calls that all policies treat alike, whatever the source and level: those by any
    of `agents` for any of `tasks`.

    `admitting` are the policies that apply to the agents. Of these, `permitting` allow the tasks,
    except for the sources that they deny, and `denying` deny the tasks.
    """

    agents: int
    tasks: int
    admitting: int
    permitting: int
    denying: int


class Access:
    """The access that the policies of a role allow, on one or several `sides`, such as before and
    after a change. Each side is a set of `policies`.

    `allowed_sources` and `denied_sources` hold, for each policy, the sources that its lists match.
    """

    def __init__(
        self, *sides: Iterable[Policy], query: AccessQuery = _ANY_CALL, apart: bool = False
    ) -> None:
        """Split all names into the classes that these policies distinguish. With `apart`, the
        classes also tell patterns apart that occur in the same lists. Raises `TooManyClasses`."""
        # By name, so that the lowest bit is the policy that a decision names. What is on several
        # sides is one policy.
        every = (policy for side in sides for policy in side)
        self.policies = sorted(dict.fromkeys(every), key=lambda policy: policy.name)
        number = {policy: at for at, policy in enumerate(self.policies)}
        self.sides = [as_bits(number[policy] for policy in side) for side in sides]
        self._shared = reduce(and_, self.sides)
        self.space = Space(self.policies, query, apart=apart)
        names = self.space.source_names
        self.allowed_sources = [names.matched_by(each.allowed_sources) for each in self.policies]
        self.denied_sources = [names.matched_by(each.denied_sources) for each in self.policies]
        self._at_least = [0] * len(SENSITIVITIES)
        for at, policy in enumerate(self.policies):
            for rank in range(RANK[policy.max_sensitivity] + 1):
                self._at_least[rank] |= 1 << at
        # The same policies decide many calls.
        self._allowing, self._denying = cache(self._allowed_by), cache(self._denied_by)

    def calls(self, agents: int | None = None, tasks: int | None = None) -> Iterator[Calls]:
        """Yield all groups of calls, or only those by `agents` for `tasks`. Raises
        `TooManyClasses`."""
        by_agent = _grouped(self._admitting(), agents)
        by_task = _grouped(self._task_effects(), tasks)
        for admitting, those_agents in by_agent.items():
            self.space.budget.spend(len(by_task))
            # Most policies admit other agents, so that most tasks are alike to these.
            for (permitting, denying), those_tasks in _within(by_task, admitting).items():
                yield Calls(those_agents, those_tasks, admitting, permitting, denying)

    def allowed(self, calls: Calls, side: int = -1) -> list[int]:
        """Return the sources that the policies of a side allow, as one set for each level, the
        lowest first."""
        denied = self.denied(calls, side)
        passing = calls.permitting & side
        both = (self._allowing(passing & self._shared), self._allowing(passing & ~self._shared))
        return [(one | other) & ~denied for one, other in zip(*both, strict=True)]

    def denied(self, calls: Calls, side: int = -1) -> int:
        """Return the sources that the policies of a side deny explicitly."""
        # INVARIANT: an explicit denial by a policy that admits the agent overrides every allow.
        if calls.denying & side:
            return self.space.source_names.everything
        return self._denying(calls.admitting & side)

    def deciding(self, calls: Calls, among: int) -> dict[tuple[str, ...], int]:
        """Group the allowed sources of `among` by the policies that their decisions name: for each
        level that is allowed, from the lowest, the first policy by name that allows it."""
        found: dict[tuple[str, ...], int] = {(): among & ~self.denied(calls)}
        for level in range(1, len(SENSITIVITIES) + 1):
            for names, sources in [each for each in found.items() if len(each[0]) == level - 1]:
                left = sources
                for each in members(self.up_to(calls.permitting, level)):
                    mine = left & self.allowed_sources[each]
                    if mine:
                        found[*names, self.policies[each].name] = mine
                        left &= ~mine
                found[names] = left
        return {names: sources for names, sources in found.items() if names and sources}

    def up_to(self, policies: int, level: int) -> int:
        """Return the policies of the set `policies` that allow at least the `level` lowest
        sensitivity levels."""
        return policies & self._at_least[level - 1]

    def _allowed_by(self, policies: int) -> tuple[int, ...]:
        """Return the sources that any of these policies allows, as one set for each level, the
        lowest first."""
        self.space.budget.spend(policies.bit_count())
        highest = [0] * len(SENSITIVITIES)
        for each in members(policies):
            highest[RANK[self.policies[each].max_sensitivity]] |= self.allowed_sources[each]
        return tuple(accumulate(reversed(highest), or_))[::-1]

    def _denied_by(self, policies: int) -> int:
        self.space.budget.spend(policies.bit_count())
        found = 0
        for each in members(policies):
            found |= self.denied_sources[each]
        return found

    def _admitting(self) -> Iterator[int]:
        """Yield, for each agent, the set of policies that admit it."""
        everyone = 0
        admitting = [0] * len(self.space.agents)
        for at, policy in enumerate(self.policies):
            if not policy.permitted_agent_ids:
                everyone |= 1 << at
            for agent in members(self.space.agents_of(policy.permitted_agent_ids)):
                admitting[agent] |= 1 << at
        return (each | everyone for each in admitting)

    def _task_effects(self) -> Iterator[tuple[int, int]]:
        """Yield, for each task, the set of policies whose `allowed_tasks` admit it, and the set of
        policies that deny it."""
        allowing: dict[Task, int] = defaultdict(int)
        denying: dict[Task, int] = defaultdict(int)
        every = 0
        for at, policy in enumerate(self.policies):
            every |= (not policy.allowed_tasks) << at
            for task in policy.allowed_tasks:
                allowing[task] |= 1 << at
            for task in policy.denied_tasks:
                denying[task] |= 1 << at
        allowing[None] = -1  # a call without a task
        for each in self.space.tasks:
            yield every | allowing[each], denying[each]


def _grouped(effects: Iterable[Effect], among: int | None) -> dict[Effect, int]:
    """Group the positions of equal values in `effects`, as a set for each value; only positions in
    the set `among`, if it is given."""
    groups: dict[Effect, list[int]] = defaultdict(list)
    for at, effect in enumerate(effects):
        if among is None or among >> at & 1:
            groups[effect].append(at)
    return {effect: as_bits(those) for effect, those in groups.items()}


def _within(effects: Mapping[tuple[int, int], int], admitting: int) -> dict[tuple[int, int], int]:
    """Regroup `effects`, counting only the policies in `admitting`: members whose effects differ in
    other policies alone are joined."""
    found: dict[tuple[int, int], int] = {}
    for (allowed, denied), those in effects.items():
        effect = allowed & admitting, denied & admitting
        found[effect] = found.get(effect, 0) | those
    return found


USER = "example-user"
"""The user id in each example request: policies say nothing about users."""

_MEMBERS = ("agent_role", "agent_id", "user_id", "source_id", "sensitivity_level", "task_type")


def example(
    role: str, agents: int, tasks: int, sources: int, level: Sensitivity, over: Space
) -> Retrieval:
    """Return the simplest request in these sets of the space `over`: without an agent or a task if
    the sets allow it."""
    agent_id = None
    if not agents & ABSENT_AGENT:
        agent_id = over.agent_names.shortest(over.named_agents(agents)).example
    source = over.source_names.shortest(sources)
    return Retrieval(
        role, USER, source.example, level, task_type=_task(tasks, over), agent_id=agent_id
    )


def _task(tasks: int, over: Space) -> str | None:
    """Return a task of the set to show in an example: None if the set has calls without a task,
    else a name that a policy has, else a new name that no policy has."""
    some = {over.tasks[each] for each in members(tasks)}
    if None in some:
        return None
    names = sorted(each for each in some if isinstance(each, str))
    unnamed = (each for each in map("task-{}".format, count(1)) if each not in over.tasks)
    return names[0] if names else next(unnamed)


def body(request: Retrieval) -> dict[str, Any]:
    """Return the request as the JSON body of an evaluation, without the members that are None."""
    members = {name: getattr(request, name) for name in _MEMBERS}
    return {name: value for name, value in members.items() if value is not None}


def decided(request: Retrieval, role: Role | None) -> dict[str, Any]:
    """Return the core's decision on the request, assuming that checks 1 to 5 pass, as `{decision,
    policy_name, check}`."""
    decision = evaluate_admitted(request, role)
    return {
        "decision": decision.decision,
        "policy_name": decision.policy_name,
        "check": decision.check,
    }
