"""Whether entries can match the same name, against every short name."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from policies.analysis.overlap import overlaps_with
from tests.policies.naive import matches

NAMES = tuple("".join(each) for length in range(1, 6) for each in product("abx", repeat=length))


@pytest.mark.deep(stands_in="test_an_entry_overlaps_a_list_if_it_overlaps_one_of_its_entries")
def test_entries_overlap_exactly_if_a_name_matches_both() -> None:
    random = Random(16)
    for _ in range(1000):
        one, other = (
            "".join(random.choice("ab*?") for _ in range(random.randint(1, 3))) for _ in range(2)
        )
        both = any(matches(one, name) and matches(other, name) for name in NAMES)
        assert overlaps_with([other])(one) == both, (one, other)


def test_an_entry_overlaps_a_list_if_it_overlaps_one_of_its_entries() -> None:
    overlaps = overlaps_with(["a*", "b"])
    assert [name for name in ("a", "*x", "b", "?", "c*") if overlaps(name)] == ["a", "*x", "b", "?"]
    assert not overlaps_with([])("*")
