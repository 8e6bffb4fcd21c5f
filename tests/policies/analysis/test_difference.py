"""The difference of two policy sets against brute force: exactly the requests that are decided
differently, and no other."""

from __future__ import annotations

from random import Random

import pytest

from policies.analysis.difference import by_role, difference
from policies.analysis.rows import difference_rows
from policies.definitions.model import Policy
from policies.retrieval import parse_retrieval
from tests.policies.analysis import small
from tests.support.properties import few

PAIRS = 5
"""A seed's pairs of policy sets. A full run compares 2,000 pairs, a usual one 100: brute force
evaluates 7,000 requests for each."""
SEEDS = range(few(few(400, at_least=100)))


def rows(old: list[Policy], new: list[Policy]) -> tuple[small.Rows, small.Rows]:
    """What is newly allowed and newly denied. Each example must differ as its row says."""
    found = difference_rows(difference(old, new), by_role(old), by_role(new))
    for name, answers in (
        ("newly_allowed", ["DENY", "ALLOW"]),
        ("newly_denied", ["ALLOW", "DENY"]),
    ):
        for row in found[name]:
            example = parse_retrieval(row["example"])
            assert small.Rows([row]).matching(example)
            decisions = [small.decision(example, small.roles(side)) for side in (old, new)]
            assert [each.decision for each in decisions] == answers
            assert [row["before"], row["after"]] == [
                {"decision": each.decision, "policy_name": each.policy_name, "check": each.check}
                for each in decisions
            ]
    return small.Rows(found["newly_allowed"]), small.Rows(found["newly_denied"])


def compare(random: Random, sources: int) -> None:
    """One pair of sets, by every request for so many sources."""
    old, new = small.pair(random)
    newly_allowed, newly_denied = rows(old, new)
    before, after = small.roles(old), small.roles(new)
    for role in small.ROLES:
        for request in small.requests(role, random.sample(small.SOURCES, sources)):
            was, now = small.allowed(request, before), small.allowed(request, after)
            assert len(newly_allowed.matching(request)) == (now and not was)
            assert len(newly_denied.matching(request)) == (was and not now)


@pytest.mark.deep(stands_in="test_the_rows_of_few_sources_are_decided_differently")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_rows_are_the_requests_that_are_decided_differently(seed: int) -> None:
    random = Random(seed)
    for _ in range(PAIRS):
        compare(random, 20)


def test_the_rows_of_few_sources_are_decided_differently() -> None:
    random = Random(3)
    for _ in range(12):
        compare(random, 1)


def test_equal_sets_do_not_differ() -> None:
    random = Random(1)
    policies = [small.policy(random, number) for number in range(6)]
    assert not difference(policies, policies[::-1])


def test_equivalent_sets_do_not_differ_however_they_are_written() -> None:
    one = small.of(allowed_sources=("a*", "b"), denied_sources=("ab*",), permitted_agent_ids=("*",))
    other = [
        small.of(name="m", allowed_sources=("b", "aa**"), permitted_agent_ids=("?*",)),
        small.of(name="n", allowed_sources=("a", "b", "a?*"), permitted_agent_ids=("*",)),
        small.of(name="o", allowed_sources=(), denied_sources=("ab*",)),
    ]
    assert not difference([one], other)


def test_a_removed_denial_allows_what_both_lists_match() -> None:
    old = small.of(allowed_sources=("kb-*", "handbook"), denied_sources=("*-secret", "hr*"))
    new = small.of(allowed_sources=("kb-*", "handbook"), denied_sources=("hr*",))
    found = difference_rows(difference([old], [new]), by_role([old]), by_role([new]))
    assert [row["sources"] for row in found["newly_allowed"]] == [["kb-*-secret", "kb-secret"]]
    assert not found["newly_denied"]


def test_an_exception_is_written_where_no_list_of_patterns_can() -> None:
    old = small.of(allowed_sources=("a",))
    new = small.of(
        allowed_sources=("*",), denied_sources=("b*", "c"), allowed_tasks=("t", "absent")
    )
    found = difference_rows(difference([old], [new]), by_role([old]), by_role([new]))
    [allowed], [denied] = found["newly_allowed"], found["newly_denied"]
    assert allowed["sources"] == [{"any": ["*"], "except": ["a", "b*", "c"]}]
    assert allowed["tasks"] == ["absent", {"name": "absent"}, "t"]
    assert denied["tasks"] == [{"any": "*", "except": [{"name": "absent"}, "t"]}]


def test_a_role_that_one_side_lacks_is_all_new() -> None:
    [policy] = added = [small.of(allowed_sources=("a",), permitted_agent_ids=("absent", "x*"))]
    found = difference_rows(difference([], added), by_role([]), by_role(added))
    [row] = found["newly_allowed"]
    assert row["agents"] == [{"name": "absent"}, "x*"]
    assert (row["before"]["policy_name"], row["after"]["policy_name"]) == (
        "default_deny",
        policy.name,
    )
