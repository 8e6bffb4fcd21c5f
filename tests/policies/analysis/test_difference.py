"""The difference of two policy sets against brute force: exactly the requests that are decided
differently, and no other."""

from __future__ import annotations

from random import Random

import pytest

from policies.analysis.access import Asked
from policies.analysis.difference import by_role, difference
from policies.analysis.rows import access_rows, difference_rows
from policies.retrieval import parse_retrieval
from tests.policies.analysis import small

SEEDS = 25
PAIRS = 4
"""A seed's pairs of policy sets."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_rows_are_the_requests_that_are_decided_differently(seed: int) -> None:
    random = Random(seed)
    for _ in range(PAIRS):
        old, new = small.pair(random)
        rows = difference_rows(difference(old, new), by_role(old), by_role(new))
        before, after = small.roles(old), small.roles(new)
        differ = False
        for role in small.ROLES:
            for request in small.requests(role):
                was, now = small.allowed(request, before), small.allowed(request, after)
                differ = differ or was != now
                assert len(small.matching(rows["newly_allowed"], request)) == (now and not was)
                assert len(small.matching(rows["newly_denied"], request)) == (was and not now)
        assert differ <= bool(rows["newly_allowed"] or rows["newly_denied"])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_example_differs_as_its_row_says(seed: int) -> None:
    random = Random(seed + 1000)
    for _ in range(10 * PAIRS):
        old, new = small.pair(random)
        rows = difference_rows(difference(old, new), by_role(old), by_role(new))
        for name, answers in (("newly_allowed", (False, True)), ("newly_denied", (True, False))):
            for row in rows[name]:
                example = parse_retrieval(row["example"])
                assert small.matching([row], example)
                decided = [small.allowed(example, small.roles(each)) for each in (old, new)]
                assert decided == list(answers)
                shown = [row[side]["decision"] == "ALLOW" for side in ("before", "after")]
                assert shown == list(answers)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_access_is_what_evaluation_allows(seed: int) -> None:
    random = Random(seed + 2000)
    policies = [small.policy(random, number) for number in range(4)]
    compiled = small.roles(policies)
    for role, its_policies in by_role(policies).items():
        rows = access_rows(role, its_policies, Asked())
        for request in small.requests(role):
            [*found] = small.matching(rows, request)
            assert len(found) == small.allowed(request, compiled)


def test_equal_sets_do_not_differ() -> None:
    random = Random(1)
    policies = [small.policy(random, number) for number in range(6)]
    assert not difference(policies, policies[::-1])
