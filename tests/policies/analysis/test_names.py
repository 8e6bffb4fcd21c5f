"""The classes of names: each name belongs to exactly one, and each has its shortest example."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from policies.analysis.names import NameClasses, TooManyClasses, name_classes
from policies.analysis.patterns import common, meet
from policies.analysis.regions import Writer
from tests.policies.naive import listed, matches
from tests.support.properties import few

NAMES = ["".join(each) for length in range(1, 6) for each in product("abx", repeat=length)]
SEEDS = range(few(200))


def entries(random: Random, most: int = 4) -> list[str]:
    return [
        "".join(random.choice("ab*?") for _ in range(random.randint(1, 4)))
        for _ in range(random.randint(1, most))
    ]


def lists(random: Random) -> list[list[str]]:
    """Up to four lists, which share entries."""
    every = entries(random, 6)
    return [random.sample(every, random.randint(1, len(every))) for _ in range(4)]


def matched(classes: NameClasses, name: str) -> int:
    return sum(listed(group, name) << at for at, group in enumerate(classes.groups))


def free(_steps: int) -> None:
    """Allows any amount of work."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_name_belongs_to_the_class_of_the_groups_that_match_it(seed: int) -> None:
    classes = name_classes(lists(Random(seed)))
    of = {each.matched: each for each in classes.classes}
    assert len(of) == len(classes.classes)
    for each in classes.classes:
        assert matched(classes, each.example) == each.matched
    for name in NAMES:
        its = of[matched(classes, name)]
        assert len(its.example) <= len(name)
        if name in classes.names:
            assert classes.classes[classes.names[name]] == its


@pytest.mark.parametrize("seed", SEEDS)
def test_entries_of_the_same_lists_are_one_group(seed: int) -> None:
    some = lists(Random(seed))
    groups = name_classes(some).groups
    assert sorted(entry for group in groups for entry in group) == sorted(
        {e for each in some for e in each}
    )
    within = [{at for at, each in enumerate(some) if entry in each} for entry, *_ in groups]
    for group, those in zip(groups, within, strict=True):
        assert within.count(those) == 1
        assert all({at for at, each in enumerate(some) if e in each} == those for e in group)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_written_patterns_match_exactly_the_chosen_classes(seed: int) -> None:
    random = Random(seed)
    classes = name_classes(lists(random))
    chosen = random.getrandbits(len(classes.classes))
    regions = Writer(classes).written(chosen)
    number = {each.matched: at for at, each in enumerate(classes.classes)}
    for name in NAMES:
        inside = any(listed(r.any, name) and not listed(r.besides, name) for r in regions)
        assert inside == chosen >> number[matched(classes, name)] & 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_common_part_of_two_patterns_matches_what_both_match(seed: int) -> None:
    one, other = (entries(Random(seed + at))[0] for at in (0, 1000))
    both = common(one, other, free)
    assert meet(one, other, free) == bool(both)
    for name in NAMES:
        assert listed(both, name) == (matches(one, name) and matches(other, name))


def test_a_class_of_which_all_names_are_listed_does_not_exist() -> None:
    # `ab` is all that both patterns match, and it is in a list of its own.
    classes = name_classes([["?b"], ["a?"], ["ab"]])
    assert [each.matched for each in classes.classes if each.matched & 0b11 == 0b11] == [0b111]


def test_an_example_is_not_a_name_of_another_class() -> None:
    classes = name_classes([["a*"], ["a"]])
    assert {each.example: each.matched for each in classes.classes if each.matched & 1} == {
        "a": 0b11,
        "ax": 0b01,
    }


def test_a_character_of_a_pattern_is_not_the_one_for_any_other() -> None:
    classes = name_classes([["?"], ["x"]]).classes
    assert {each.matched: each.example for each in classes} == {0b00: "xx", 0b01: "y", 0b11: "x"}


def test_a_list_of_words_has_no_class_for_each_subset_of_them() -> None:
    words = [f"*word{character}*" for character in "abcdefghijklmnopqrstuvwxyz"]
    assert len(name_classes([words]).classes) == 2


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
    with pytest.raises(TooManyClasses, match="more than 1,000,000 steps") as refused:
        name_classes([[pattern] for pattern in patterns])
    assert refused.value.patterns == tuple(patterns)
    assert f"`{patterns[0]}`" in str(refused.value)


def test_names_longer_than_an_identifier_do_not_exist() -> None:
    halves = ["a" * 129 + "*"], ["*" + "b" * 129], ["c" * 257]
    assert sorted(each.matched for each in name_classes(halves).classes) == [0b00, 0b01, 0b10]
