"""Whether entries can match the same name, against every short name."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from policies.analysis.patterns import overlaps_with
from tests.policies.naive import matches

NAMES = tuple("".join(each) for length in range(1, 6) for each in product("abx", repeat=length))


def overlaps_of(pairs: int) -> None:
    """Compares so many pairs of random patterns, by every short name."""
    random = Random(16)
    for _ in range(pairs):
        one, other = (
            "".join(random.choice("ab*?") for _ in range(random.randint(1, 3))) for _ in range(2)
        )
        both = any(matches(one, name) and matches(other, name) for name in NAMES)
        assert overlaps_with([other])(one) == both, (one, other)


@pytest.mark.deep(stands_in="test_a_few_entries_overlap_exactly_if_a_name_matches_both")
def test_entries_overlap_exactly_if_a_name_matches_both() -> None:
    overlaps_of(1000)


def test_a_few_entries_overlap_exactly_if_a_name_matches_both() -> None:
    overlaps_of(200)


def test_an_entry_overlaps_a_list_if_it_overlaps_one_of_its_entries() -> None:
    overlaps = overlaps_with(["a*", "b"])
    assert [name for name in ("a", "*x", "b", "?", "c*") if overlaps(name)] == ["a", "*x", "b", "?"]
    assert not overlaps_with([])("*")
