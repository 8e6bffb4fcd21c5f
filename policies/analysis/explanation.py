"""Explains why a policy or an entry does nothing: what decides the requests that it is about."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from policies.analysis.access import Access, Calls
from policies.analysis.names import as_bits, members
from policies.definitions.model import RANK, Policy

_NAMED = 4
"""How many policies an explanation names."""
Outcome = Literal["allowed", "denied", "decided"]


class Idle(NamedTuple):
    """A policy, or an entry of it, that does nothing.

    `key` is the entry's list, empty for the policy. `covered_by` are entries of the same list that
    match all that it matches. Otherwise the requests that it is about are decided by the policies
    `by`, of which at most four are named: all are allowed, all denied, or they are `decided` either
    way. `by` is empty if it is about no request.
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
    """With what decides the requests in `calls` about `sources` that it is about."""
    parts = [
        (each, denied, part)
        for each in calls
        for denied, part in _about(access, found.key, number, each, sources)
        if part
    ]
    level = RANK[found.policy.max_sensitivity] + 1

    def deciders(calls: Calls, denied: bool, among: int) -> Iterator[tuple[int, int]]:
        """Those of the policies `among`, each with the sources that it denies, or allows to the
        same level."""
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
    """Those of the sources that the policy, or its list `key`, is about: whether they are denied,
    and which."""
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
