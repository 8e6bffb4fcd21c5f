"""The classes of names: each name belongs to exactly one, and each has its shortest example."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from policies.analysis.names import NameClass, TooManyClasses, name_classes
from policies.analysis.regions import Writer, common
from tests.policies.naive import listed, matches

NAMES = ["".join(each) for length in range(1, 6) for each in product("abx", repeat=length)]


def entries(random: Random) -> list[str]:
    return [
        "".join(random.choice("ab*?") for _ in range(random.randint(1, 4)))
        for _ in range(random.randint(1, 4))
    ]


def matched(listed: tuple[str, ...], name: str) -> int:
    return sum(matches(entry, name) << at for at, entry in enumerate(listed))


@pytest.mark.parametrize("seed", range(40))
def test_every_name_belongs_to_the_class_of_the_entries_that_match_it(seed: int) -> None:
    classes = name_classes(entries(Random(seed)))
    exact = {each.example for each in classes.classes if each.exact}
    shared = {each.matched: each for each in classes.classes if not each.exact}
    assert len(exact) + len(shared) == len(classes.classes)
    for each in classes.classes:
        assert matched(classes.entries, each.example) == each.matched
    for name in NAMES:
        if name not in exact:
            example = shared[matched(classes.entries, name)].example
            assert len(example) <= len(name)
            assert example not in exact


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_matches_exactly_the_chosen_classes(seed: int) -> None:
    random = Random(seed)
    classes = name_classes(entries(random))
    chosen = frozenset(each for each in classes.classes if random.random() < 0.5)
    regions = Writer(classes).written(chosen)

    def class_of(name: str) -> NameClass:
        bits = matched(classes.entries, name)
        exact = [each for each in classes.classes if each.exact and each.example == name]
        return (exact or [e for e in classes.classes if not e.exact and e.matched == bits])[0]

    for name in NAMES:
        inside = any(listed(r.any, name) and not listed(r.besides, name) for r in regions)
        assert inside == (class_of(name) in chosen)


@pytest.mark.parametrize("seed", range(40))
def test_what_two_patterns_match_together(seed: int) -> None:
    one, other = (entries(Random(seed + at))[0] for at in (0, 1000))
    both = common(one, other)
    for name in NAMES:
        assert listed(both, name) == (matches(one, name) and matches(other, name))


def test_a_class_of_which_all_names_are_listed_does_not_exist() -> None:
    # `ab` is all that both patterns match, and it is listed.
    classes = name_classes(["?b", "a?", "ab"])
    assert [each.example for each in classes.classes if each.matched & 0b11 == 0b11] == ["ab"]


def test_an_example_is_not_a_listed_name() -> None:
    classes = name_classes(["a*", "a"])
    assert {each.example: each.exact for each in classes.classes if each.matched & 1} == {
        "a": True,
        "ax": False,
    }


def test_a_character_of_a_pattern_is_not_the_one_for_any_other() -> None:
    [both] = [each for each in name_classes(["?", "x"]).classes if each.matched == 0b11]
    [other] = [each for each in name_classes(["?", "x"]).classes if each.matched == 0b01]
    assert (both.example, other.example) == ("x", "y")


@pytest.mark.parametrize(
    "patterns",
    [
        ["*a" + "?" * 20],
        ["*a" + "?" * 20 + "*b", "*b????????????"],
        [f"*{character}*" for character in "abcdefghijklmnopqrst"],
        [f"*t{number}z*" for number in range(200)],
    ],
)
def test_patterns_that_overlap_in_too_many_ways_are_named(patterns: list[str]) -> None:
    with pytest.raises(TooManyClasses, match="overlap in more than 20,000 ways") as refused:
        name_classes(patterns)
    assert refused.value.patterns == tuple(patterns)
    assert f"`{patterns[0]}`" in str(refused.value)


def test_names_longer_than_an_identifier_do_not_exist() -> None:
    halves = ["a" * 129 + "*", "*" + "b" * 129]
    assert 0b11 not in [each.matched for each in name_classes(halves).classes]
