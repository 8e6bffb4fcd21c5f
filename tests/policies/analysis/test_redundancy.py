"""What does nothing, against the exact difference without it, which brute force has proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from policies.analysis.difference import difference
from policies.analysis.redundancy import Idle, idle
from policies.definitions.model import Policy
from tests.policies.analysis import small
from tests.support.properties import few

SEEDS = range(few(500))
NEVER = "x" * 257
"""Longer than a name may be."""
LISTS = (
    "allowed_sources",
    "denied_sources",
    "allowed_tasks",
    "denied_tasks",
    "permitted_agent_ids",
)
EVERYTHING = small.of(name="~", allowed_sources=("*",), max_sensitivity="critical")


def differ(one: Sequence[Policy], other: Sequence[Policy]) -> bool:
    """Whether any request is decided otherwise, or any that a policy denies explicitly would be if
    all else were allowed."""
    return bool(difference(one, other) or difference([*one, EVERYTHING], [*other, EVERYTHING]))


def without(policies: Sequence[Policy], found: Idle) -> list[Policy]:
    if not found.key:
        return [each for each in policies if each is not found.policy]
    entries = [
        NEVER if entry == found.entry else entry for entry in getattr(found.policy, found.key)
    ]
    lists: dict[str, Any] = {found.key: tuple(entries)}
    changed = replace(found.policy, **lists)
    return [changed if each is found.policy else each for each in policies]


def candidates(policies: Sequence[Policy]) -> Iterator[Idle]:
    for each in policies:
        yield Idle(each)
        for key in LISTS:
            for entry in dict.fromkeys(getattr(each, key)):
                yield Idle(each, key, entry)


@pytest.mark.parametrize("seed", SEEDS)
def test_redundant_parts_are_exactly_those_removable_without_a_difference(seed: int) -> None:
    random = Random(seed)
    policies = [replace(small.policy(random, at), agent_role="r") for at in range(4)]
    found = {(each.policy.name, each.key, each.entry) for each in idle(policies)}
    gone = {name for name, key, _ in found if not key}
    for each in candidates(policies):
        name = each.policy.name
        if name not in gone or not each.key:  # an entry of such a policy is not named, too
            nothing = (name, each.key, each.entry) in found
            assert nothing != differ(policies, without(policies, each))


def described(*policies: Policy) -> list[tuple[str, ...]]:
    """What does nothing in policies: what it is, why, and by which policies or entries."""
    return [
        (
            *(part for part in (each.policy.name, each.key, each.entry) if part),
            "covered" if each.covered_by else each.outcome,
            *each.covered_by,
            *(by.name for by in each.by),
        )
        for each in idle(policies)
    ]


def test_a_policy_contained_in_another_is_redundant() -> None:
    small_one = small.of(name="a", allowed_sources=("kb-x", "kb-1*"), max_sensitivity="low")
    large_one = small.of(name="b", allowed_sources=("kb-*",))
    assert described(small_one, large_one) == [("a", "allowed", "b")]
    assert described(replace(small_one, max_sensitivity="critical"), large_one) == []


def test_a_policy_contained_in_several_others_names_them() -> None:
    parts = [
        small.of(name="b", allowed_sources=("x*",)),
        small.of(name="c", allowed_sources=("y*",)),
    ]
    both = small.of(name="a", allowed_sources=("xx", "yy"))
    assert described(both, *parts) == [("a", "allowed", "b", "c")]


def test_each_of_two_equal_policies_is_redundant_beside_the_other() -> None:
    twins = [small.of(name=name, allowed_sources=("x",)) for name in "ab"]
    assert described(*twins) == [("a", "allowed", "b"), ("b", "allowed", "a")]


def test_a_policy_that_shortens_sessions_does_something() -> None:
    twins = [small.of(name=name, allowed_sources=("x",)) for name in "ab"]
    short = replace(twins[0], session_ttl_minutes=5)
    assert described(short, twins[1]) == [
        ("a", "allowed_sources", "x", "allowed", "b"),
        ("b", "allowed", "a"),
    ]


def test_a_denial_of_something_that_no_policy_allows_is_not_redundant() -> None:
    assert described(small.of(allowed_sources=("x",), denied_sources=("payroll",))) == []
    assert described(small.of(denied_sources=("payroll",))) == []


def test_a_denial_that_another_policy_repeats_is_redundant() -> None:
    one = small.of(name="a", allowed_sources=("x",), denied_sources=("pay", "hr"))
    other = small.of(name="b", allowed_sources=("y",), denied_sources=("pay*",))
    assert described(one, other) == [("a", "denied_sources", "pay", "denied", "b")]


def test_an_allowed_source_that_another_policy_denies_is_redundant() -> None:
    one = small.of(name="a", allowed_sources=("x", "y"))
    other = small.of(
        name="b", allowed_sources=("z",), denied_sources=("y?", "?"), denied_tasks=("t",)
    )
    assert described(one, other) == [
        ("a", "denied", "b"),
        ("b", "allowed_sources", "z", "denied", "b"),
    ]


def test_an_entry_covered_by_others_of_its_list_names_them() -> None:
    policy = small.of(allowed_sources=("a*", "ab?*", "?", "abc"), denied_sources=("q",))
    assert described(policy) == [
        ("p", "allowed_sources", "ab?*", "covered", "a*"),
        ("p", "allowed_sources", "abc", "covered", "a*"),
    ]
    halves = small.of(allowed_sources=("?", "??*", "*"))
    assert described(halves)[-1] == ("p", "allowed_sources", "*", "covered", "?", "??*")


def test_a_policy_that_allows_and_denies_nothing_is_reported() -> None:
    assert described(small.of()) == [("p", "decided")]


def test_a_task_that_the_policy_also_denies_is_redundant() -> None:
    policy = small.of(allowed_sources=("x",), allowed_tasks=("t", "u"), denied_tasks=("t",))
    assert described(policy) == [("p", "allowed_tasks", "t", "denied", "p")]


def test_an_agent_that_another_policy_serves_as_well_is_redundant() -> None:
    one = small.of(name="a", allowed_sources=("x",), permitted_agent_ids=("agt_1", "agt_2"))
    other = small.of(name="b", allowed_sources=("x",), permitted_agent_ids=("*1",))
    assert described(one, other) == [("a", "permitted_agent_ids", "agt_1", "allowed", "b")]
