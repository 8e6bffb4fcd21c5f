"""Writes a set of classes of names as a person would: patterns, exact names, and exceptions.

What is written matches exactly the names of the classes. Knows nothing of what the names mean.
"""

from collections.abc import Iterable, Iterator, Set
from functools import cache
from typing import NamedTuple

from policies.analysis.names import NameClass, NameClasses
from policies.definitions.wildcard import Step, Steps, is_pattern, steps

EVERYTHING = "*"


class Region(NamedTuple):
    """The names that match one of `any` and none of `besides`. Both hold patterns and names."""

    any: tuple[str, ...]
    besides: tuple[str, ...] = ()


class Writer:
    """Writes sets of the classes of `names`."""

    def __init__(self, names: NameClasses) -> None:
        self._names = names
        self._everything = frozenset(names.classes)
        # What each entry covers. `*` may be written whether or not a list has it.
        self._covers = {
            entry: frozenset(each for each in names.classes if each.matched >> bit & 1)
            for bit, entry in enumerate(names.entries)
        }
        self._covers[EVERYTHING] = self._everything

    def written(self, chosen: Set[NameClass]) -> tuple[Region, ...]:
        """Regions that together match exactly the names of `chosen`."""
        left = set(chosen)
        plain: list[str] = []
        while left:
            best = max(self._covers, key=lambda entry: self._gain(entry, chosen, left))
            if not self._gain(best, chosen, left)[0]:
                break
            plain.append(best)
            left -= self._covers[best]
        regions = [Region(tuple(sorted(plain)))] if plain else []
        while left:
            region, covered = self._with_exceptions(chosen, left)
            regions.append(region)
            left -= covered
        return tuple(regions)

    def _gain(
        self, entry: str, chosen: Set[NameClass], left: Set[NameClass]
    ) -> tuple[int, bool, int]:
        """How many of the classes that are left `entry` covers; 0 if it covers others than the
        chosen ones. Of equals, an exact name comes first, then the shorter pattern."""
        covers = self._covers[entry]
        gain = len(covers & left) if covers <= chosen else 0
        return gain, not is_pattern(entry), -len(entry)

    def _with_exceptions(
        self, chosen: Set[NameClass], left: Set[NameClass]
    ) -> tuple[Region, frozenset[NameClass]]:
        best: tuple[tuple[int, int], Region, frozenset[NameClass]] | None = None
        for entry, covers in self._covers.items():
            if not covers & left:
                continue
            besides = self._exceptions(covers - chosen, covers & left)
            if besides is None:
                continue
            kept = covers
            for each in besides:
                kept -= self._covers[each]
            gain = len(kept & left)
            rank = gain, -len(besides)
            if gain and (best is None or rank > best[0]):
                best = rank, Region((entry,), tuple(sorted(besides))), kept
        if best is not None:
            return best[1], best[2]
        return self._one(min(left))

    def _exceptions(
        self, unwanted: Set[NameClass], wanted: Set[NameClass]
    ) -> tuple[str, ...] | None:
        """Entries that cover all that is unwanted, and not all that is wanted; None if there are
        none."""
        found: list[str] = []
        left, kept = set(unwanted), set(wanted)
        while left:
            usable = [each for each in self._covers if self._covers[each] & left]
            usable = [each for each in usable if kept - self._covers[each]]
            if not usable:
                return None
            # First those that take nothing away of what is wanted, and most of what is not.
            best = max(
                usable,
                key=lambda each: (
                    -len(self._covers[each] & kept),
                    len(self._covers[each] & left),
                    -len(each),
                ),
            )
            found.append(best)
            left -= self._covers[best]
            kept -= self._covers[best]
        return tuple(found)

    def _one(self, wanted: NameClass) -> tuple[Region, frozenset[NameClass]]:
        """One class by itself: what all patterns that match it match together, without what any
        other matches."""
        matching = tuple(each for each in self._covers if wanted in self._covers[each])
        others = [each for each in self._covers if wanted not in self._covers[each]]
        every: tuple[str, ...] = matching[:1]
        for each in matching[1:]:
            every = tuple(dict.fromkeys(found for one in every for found in common(one, each)))
        inside = frozenset.intersection(*(self._covers[each] for each in matching))
        besides = [each for each in others if self._covers[each] & inside]
        return Region(tuple(sorted(every)), tuple(sorted(besides))), frozenset((wanted,))


def common(one: str, other: str) -> tuple[str, ...]:
    """Patterns that together match exactly the names which both patterns match."""
    found = {_text(each) for each in _common(steps(one), steps(other))}
    return tuple(sorted(found))


@cache
def _common(one: Steps, other: Steps) -> frozenset[Steps]:
    """Both patterns at once: each step of one is taken by a step of the other, or by a run."""
    mine, its = one.steps, other.steps
    if not mine and not its:
        return frozenset((Steps((), one.open_end and other.open_end),))
    found: set[Steps] = set()
    if mine and its:
        met = _met(mine[0].character, its[0].character)
        if met is not None:
            # Both take the same character, after a run if both allow one.
            both = Step(met[0], mine[0].after_run and its[0].after_run)
            found.update(_followed(both, _rest(one), _rest(other)))
    # One pattern is in a run while the other takes its next step.
    if its and (mine[0].after_run if mine else one.open_end):
        mid = Step(its[0].character, its[0].after_run)
        found.update(_followed(mid, one, _rest(other)))
    if mine and (its[0].after_run if its else other.open_end):
        mid = Step(mine[0].character, mine[0].after_run)
        found.update(_followed(mid, _rest(one), other))
    return frozenset(found)


def _followed(step: Step, one: Steps, other: Steps) -> Iterator[Steps]:
    return (Steps((step, *rest.steps), rest.open_end) for rest in _common(one, other))


def _rest(pattern: Steps) -> Steps:
    return Steps(pattern.steps[1:], pattern.open_end)


def _met(one: str | None, other: str | None) -> tuple[str | None] | None:
    """The character that both ask for, in a tuple; None if they differ."""
    if one is None or other is None or one == other:
        return (other if one is None else one,)
    return None


def _text(pattern: Steps) -> str:
    text = "".join(
        ("*" if step.after_run else "") + ("?" if step.character is None else step.character)
        for step in pattern.steps
    )
    return text + ("*" if pattern.open_end else "")


def shortest(names: Iterable[NameClass]) -> NameClass:
    """The class with the shortest example; of equals, the first by its text."""
    return min(names, key=lambda each: (len(each.example), each.example))
