"""Finds which policies and entries of one role do nothing, here called idle, and what decides their
requests instead.

    a policy    does nothing if every request is decided alike without it, everything that it denies
                is denied by another policy too, and it doesn't shorten the role's sessions
    an entry    does nothing if every request were decided alike if it matched no name, and, in a
                denying list, if everything that it denies is denied by another entry too

So a denial of something that is not allowed anyway is not idle: it will matter once a policy allows
it. Each finding holds by itself: of two policies that do the same, each does nothing beside the
other. Without an idle policy, `policy_name` in a decision may change, but ALLOW and DENY don't.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from policies.analysis.access import Access, Calls
from policies.analysis.names import NameClasses, as_bits, members
from policies.definitions.model import RANK, SENSITIVITIES, Policy
from policies.definitions.wildcard import is_pattern

_NAMED = 4
"""The most policies that an explanation names."""
Outcome = Literal["allowed", "denied", "decided"]


class Idle(NamedTuple):
    """A policy that does nothing, or an entry of one.

    `key` is the name of the entry's list, empty if the whole policy is meant. `covered_by` are
    entries of the same list that together match all that the entry matches. If there are none, the
    requests that the policy or entry is about are decided by the policies `by`, of which at most
    four are named; `outcome` says that all these requests are allowed, all are denied, or they are
    decided either way. `by` is empty if it is about no request.
    """

    policy: Policy
    key: str = ""
    entry: str = ""
    covered_by: tuple[str, ...] = ()
    outcome: Outcome = "decided"
    by: tuple[Policy, ...] = ()


def explained(
    access: Access, found: Idle, number: int, calls: Iterable[Calls], sources: int
) -> Idle:
    """Return the finding `found` with the policies that decide the requests in `calls` about
    `sources` instead. `number` is the policy's in `access`."""
    parts = [
        (each, denied, part)
        for each in calls
        for denied, part in _about(access, found.key, number, each, sources)
        if part
    ]
    level = RANK[found.policy.max_sensitivity] + 1

    def deciders(calls: Calls, denied: bool, among: int) -> Iterator[tuple[int, int]]:
        """Yield the policies of the set `among` that decide such calls, each with the sources that
        it denies, or, if `denied` is false, allows up to the same level."""
        deciding = calls.admitting if denied else access.up_to(calls.permitting, level)
        for other in members(deciding & among):
            if not denied:
                yield other, access.allowed_sources[other]
            elif calls.denying >> other & 1:
                yield other, access.space.source_names.everything
            else:
                yield other, access.denied_sources[other]

    others = always = (1 << len(access.policies)) - 1 & ~(1 << number)
    for each, denied, part in parts:
        always = as_bits(o for o, its in deciders(each, denied, always) if not part & ~its)
    some = 0
    for each, denied, part in [] if always else parts:
        if some.bit_count() >= _NAMED:
            break
        left = part
        for other, its in deciders(each, denied, others):
            if left & its:
                some |= 1 << other
                left &= ~its
        if left:
            some |= 1 << number  # another list of the policy itself denies it
    by = as_bits(list(members(always & -always if parts and always else some))[:_NAMED])
    outcomes: set[Outcome] = {"denied" if denied else "allowed" for _, denied, _ in parts}
    return found._replace(
        outcome=outcomes.pop() if len(outcomes) == 1 else "decided",
        by=tuple(access.policies[each] for each in members(by)),
    )


def _about(
    access: Access, key: str, number: int, calls: Calls, sources: int
) -> Iterator[tuple[bool, int]]:
    """Yield the sources that a policy, or its list `key`, is about: first True with those that are
    denied, then False with the others. `number` is the policy's in `access`."""
    own = 0
    if calls.permitting >> number & 1 and not key.startswith("denied"):
        own |= access.allowed_sources[number]
    if calls.admitting >> number & 1 and not key.startswith("allowed"):
        own |= access.denied_sources[number]
        if calls.denying >> number & 1:
            own |= access.space.source_names.everything
    denied = access.denied(calls)
    yield True, sources & own & denied
    yield False, sources & own & ~denied


class _Needed:
    """The requests for which each policy is needed, because they would be decided otherwise without
    it: their agents, tasks and sources, by the policy's number. Kept separately for the policy's
    allowing lists, its denied tasks and its denied sources."""

    def __init__(self, access: Access, every: Iterable[Calls]) -> None:
        self.agents: dict[int, int] = defaultdict(int)
        self.allowed_tasks: dict[int, int] = defaultdict(int)
        self.allowed_sources: dict[int, int] = defaultdict(int)
        self.denied_tasks: dict[int, int] = defaultdict(int)
        self.denied_sources: dict[int, int] = defaultdict(int)
        for calls in every:
            self._add_denying(access, calls)
            self._add_allowing(access, calls)

    def _add_denying(self, access: Access, calls: Calls) -> None:
        everything = access.space.source_names.everything
        denying = [
            (each, access.denied_sources[each], everything * (calls.denying >> each & 1))
            for each in members(calls.admitting)
        ]
        sole = _once(task | source for _, source, task in denying)
        for each, source, task in denying:
            if (source | task) & sole:
                self.agents[each] |= calls.agents
            # One that denies the task and the source needs neither entry.
            if task & ~source & sole:
                self.denied_tasks[each] |= calls.tasks
            if not task:
                self.denied_sources[each] |= source & sole

    def _add_allowing(self, access: Access, calls: Calls) -> None:
        left = access.space.source_names.everything & ~access.denied(calls)
        for level in range(len(SENSITIVITIES), 0, -1):
            allowing = list(members(access.up_to(calls.permitting, level)))
            sole = left & _once(access.allowed_sources[each] for each in allowing)
            for each in allowing:
                sources = access.allowed_sources[each]
                if sources & sole:
                    self.agents[each] |= calls.agents
                    self.allowed_tasks[each] |= calls.tasks
                    self.allowed_sources[each] |= sources & sole
                # These policies alone decide the sources that are allowed at this level.
                left &= ~sources


def _once(sets: Iterable[int]) -> int:
    """Return the members that are in exactly one of the sets, which are bit masks."""
    once = twice = 0
    for each in sets:
        twice |= once & each
        once |= each
    return once & ~twice


def idle(policies: Iterable[Policy]) -> Iterator[Idle]:
    """Yield the policies and entries that do nothing among these policies, which must be all of one
    role. Raises `TooManyClasses`."""
    access = Access(policies, apart=True)
    calls = list(access.calls())
    needed = _Needed(access, calls)
    everything = access.space.source_names.everything
    for number, policy in enumerate(access.policies):
        if needed.agents[number] or _shortens_sessions(policy, access.policies):
            yield from _idle_names(access, needed, number, calls)
            yield from _idle_tasks(access, needed, number, calls)
        else:
            yield explained(access, Idle(policy), number, calls, everything)


def _shortens_sessions(policy: Policy, policies: Iterable[Policy]) -> bool:
    # The smallest limit of the role's policies applies.
    limit = policy.session_ttl_minutes
    limits = (each.session_ttl_minutes for each in policies if each is not policy)
    return limit is not None and all(each is None or limit < each for each in limits)


def _idle_names(
    access: Access, needed: _Needed, number: int, calls: Iterable[Calls]
) -> Iterator[Idle]:
    """Yield the idle entries of a policy's lists that may hold wildcards: sources and agent ids."""
    policy, space = access.policies[number], access.space
    for key, names, used in (
        ("allowed_sources", space.source_names, needed.allowed_sources[number]),
        ("denied_sources", space.source_names, needed.denied_sources[number]),
        ("permitted_agent_ids", space.agent_names, space.named_agents(needed.agents[number])),
    ):
        entries = tuple(dict.fromkeys(getattr(policy, key)))
        for entry in entries:
            alone = _alone(names, entry, entries)
            if alone & used:
                continue
            found = Idle(policy, key, entry)
            if not alone:
                yield found._replace(covered_by=_covering(names, entry, entries))
            elif key == "permitted_agent_ids":
                agents = space.agents_named(alone)
                its = [each for each in calls if each.agents & agents]
                yield explained(access, found, number, its, space.source_names.everything)
            else:
                yield explained(access, found, number, calls, alone)


def _idle_tasks(
    access: Access, needed: _Needed, number: int, calls: Iterable[Calls]
) -> Iterator[Idle]:
    """Yield the idle entries of a policy's lists of tasks."""
    policy, everything = access.policies[number], access.space.source_names.everything
    for key, used in (
        ("allowed_tasks", needed.allowed_tasks[number]),
        ("denied_tasks", needed.denied_tasks[number]),
    ):
        for entry in dict.fromkeys(getattr(policy, key)):
            tasks = access.space.tasks_of((entry,))
            if not tasks & used:
                its = [each for each in calls if each.tasks & tasks]
                yield explained(access, Idle(policy, key, entry), number, its, everything)


def _matched(names: NameClasses, entry: str) -> int:
    """Return the set of classes of names that an entry matches."""
    if is_pattern(entry):
        return names.covers[names.group_of[entry]]
    return 1 << names.names[entry] if entry in names.names else 0


def _alone(names: NameClasses, entry: str, entries: Iterable[str]) -> int:
    """Return the set of classes of names that `entry` matches and no other entry of `entries`
    does."""
    found = _matched(names, entry)
    for other in entries:
        # Two exact names may be in one class, and match different names.
        if other != entry and (is_pattern(other) or is_pattern(entry)):
            found &= ~_matched(names, other)
    return found


def _covering(names: NameClasses, entry: str, entries: Iterable[str]) -> tuple[str, ...]:
    """Return a few of the other entries that together match all that `entry` matches. The entry
    that matches most of the rest is taken each time, so they need not be the fewest."""
    left = _matched(names, entry)
    others = [each for each in entries if each != entry]
    found = []
    while left:
        best = max(others, key=lambda each: (_matched(names, each) & left).bit_count())
        found.append(best)
        left &= ~_matched(names, best)
    return tuple(found)
