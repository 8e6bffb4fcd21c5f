"""Wildcards: equal to dynamic programming over prefixes, and linear for a hostile name."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.definitions.wildcard import is_pattern, literal_prefixes, matcher, shared_prefix
from tests.policies.naive import common_beginning, listed, matches

SMALL = st.text("ab*?", max_size=10)
ODD = st.text("ab*?[]\\.^$+|(){}\n\u2028é😀", max_size=10)


@given(SMALL | ODD, SMALL | ODD)
def test_a_pattern_matches_the_same_as_a_plain_matcher(pattern: str, name: str) -> None:
    assert matcher([pattern])(name) == matches(pattern, name)


@given(st.lists(SMALL | ODD, max_size=5), SMALL | ODD)
def test_a_list_matches_where_one_of_its_entries_does(entries: list[str], name: str) -> None:
    assert matcher(entries)(name) == listed(tuple(entries), name)


@given(st.text(max_size=30))
def test_a_star_matches_everything(name: str) -> None:
    assert matcher(["*"])(name)
    assert matcher(["x", "*"])(name)


@given(st.text(max_size=30))
def test_an_empty_list_matches_nothing(name: str) -> None:
    assert not matcher([])(name)


@given(st.text(st.characters(exclude_characters="*?"), max_size=30), st.text(max_size=30))
def test_without_wildcards_only_the_name_itself_matches(entry: str, name: str) -> None:
    assert not is_pattern(entry)
    assert matcher([entry])(name) == (entry == name)
    assert matcher([entry])(entry)


def test_a_list_without_wildcards_is_a_set() -> None:
    assert matcher(["a", "b"]).__name__ == "__contains__"


HOSTILE = {
    "many stars": ("*a" * 60 + "*b", "a"),
    "stars and marks": ("*?" * 60 + "b", "a"),
    "repeated pieces": ("*aab" * 40, "aa"),
    "a long tail": ("*" + "a" * 120 + "b", "a"),
    "nearly there": ("a*" * 100 + "c", "ab"),
}


@pytest.mark.parametrize(("pattern", "piece"), HOSTILE.values(), ids=HOSTILE.keys())
def test_the_time_for_a_hostile_name_grows_no_faster_than_its_length(
    pattern: str, piece: str
) -> None:
    """Four times the name takes about four times as long. A matcher that backtracks would take
    longer than the test run, and a quadratic one sixteen times."""
    match = matcher([pattern])
    short, long = piece * 20_000, piece * 80_000

    def cost(name: str) -> float:
        begin = process_time()
        match(name)
        return process_time() - begin

    assert min(cost(long) for _ in range(5)) < 12 * min(cost(short) for _ in range(5)) + 0.001


@given(st.lists(SMALL | ODD, max_size=8), SMALL | ODD)
def test_the_longest_common_beginning_is_found_by_a_search(entries: list[str], name: str) -> None:
    literal = [entry.replace("?", "*").partition("*")[0] for entry in entries]
    plain = [common_beginning(each, name) for each in literal]
    assert shared_prefix(literal_prefixes(entries), name) == max(plain, default=0)
