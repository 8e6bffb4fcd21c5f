"""Splits all possible names into classes that a set of lists can't tell apart.

A list holds exact names and patterns. Entries that are in the same lists form a group; two names
belong to the same class if the same groups match both. There are finitely many classes, and a
search (`patterns.py`), shortest names first, finds each with its shortest example.

Knows nothing of what the names mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policies.analysis.patterns import Positions
from policies.definitions.wildcard import is_pattern, matcher
from policies.ground.canonical import MAX_IDENTIFIER

MAX_STEPS = 1_000_000
"""The work that a question about one role may take, about half a second. It must be limited,
because patterns can be written that have exponentially many classes."""


class TooManyClasses(Exception):
    """the patterns interact in too many ways to be analysed"""

    def __init__(self, patterns: Iterable[str], steps: int = MAX_STEPS) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        shown = ", ".join(f"`{each}`" for each in self.patterns[:8])
        more = f" and {len(self.patterns) - 8} more" if len(self.patterns) > 8 else ""
        what = f"the patterns {shown}{more}" if shown else "the policies of the role"
        super().__init__(
            f"{what} overlap in too many ways: to analyse them takes more than {steps:,} steps;"
            " use fewer `*` and `?` in each, exact names, or fewer policies for the role"
        )


class Budget:
    """The work that may still be done for one question. `lists` are the lists that it is about,
    which the error names."""

    def __init__(self, lists: Sequence[Iterable[str]], steps: int = MAX_STEPS) -> None:
        self._lists = lists
        self._steps = self._left = steps

    def spend(self, steps: int) -> None:
        """Take `steps` from the budget. Raises `TooManyClasses` once it is overspent."""
        self._left -= steps
        if self._left < 0:
            patterns = (entry for each in self._lists for entry in filter(is_pattern, each))
            raise TooManyClasses(patterns, self._steps)


class NameClass(NamedTuple):
    """A class of names that the same groups match. `matched` has bit i set if group i matches them;
    `example` is the shortest such name."""

    matched: int
    example: str


@dataclass(frozen=True, slots=True)
class NameClasses:
    """All classes of all possible names, for some lists. Sets of classes are bit masks: bit i
    stands for class i.

    Classes that fewer groups match come first. `names` maps each exact name in a list to its class;
    `covers` has, for each group, the classes that it matches.
    """

    groups: tuple[tuple[str, ...], ...]
    classes: tuple[NameClass, ...]
    names: dict[str, int]
    covers: tuple[int, ...]
    group_of: dict[str, int]
    budget: Budget

    @property
    def everything(self) -> int:
        return (1 << len(self.classes)) - 1

    def matched_by(self, entries: Iterable[str]) -> int:
        """Return the set of classes that any of `entries` matches. The entries must be whole lists
        among those that were split, or whole groups of them."""
        found = 0
        for group in {self.group_of[entry] for entry in entries if entry in self.group_of}:
            found |= self.covers[group]
        return found

    def sorted_by_class(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Return these names, in their order, keyed by the number of their class."""
        matchers = [(1 << bit, matcher(group)) for bit, group in enumerate(self.groups)]
        number = {each.matched: at for at, each in enumerate(self.classes)}
        found: dict[int, list[str]] = {}
        for name in names:
            at = self.names.get(name)
            if at is None:
                at = number[sum(bit for bit, matches in matchers if matches(name))]
            found.setdefault(at, []).append(name)
        return found

    def shortest(self, chosen: int) -> NameClass:
        """Return, of the set of classes `chosen`, the class with the shortest example; of equally
        short ones, the first by its text."""
        return min(
            (self.classes[each] for each in members(chosen)),
            key=lambda each: (len(each.example), each.example),
        )


def members(bits: int) -> Iterable[int]:
    """Yield the numbers in a set given as a bit mask, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def as_bits(numbers: Iterable[int]) -> int:
    """Return a set of numbers as a bit mask: the reverse of `members`."""
    found = bytearray()
    for each in numbers:
        byte, bit = divmod(each, 8)
        if byte >= len(found):
            found.extend(bytes(byte + 1 - len(found)))
        found[byte] |= 1 << bit
    return int.from_bytes(found, "little")


def name_classes(lists: Sequence[Iterable[str]], budget: Budget | None = None) -> NameClasses:
    """Return the classes of names that `lists` tell apart. Raises `TooManyClasses`."""
    groups = _groups(lists)
    budget = budget or Budget(groups)
    patterns = [tuple(filter(is_pattern, group)) for group in groups]
    positions = Positions(patterns, budget.spend)
    group_of = {entry: at for at, group in enumerate(groups) for entry in group}
    names = {
        name: positions.matched_by(name)
        for name in group_of
        if not is_pattern(name) and len(name) <= MAX_IDENTIFIER
    }
    foreign = {
        name: matched for name, matched in names.items() if not matched >> group_of[name] & 1
    }
    examples = positions.shortest()
    taken = {matched for matched, example in examples.items() if example in foreign}
    if taken:
        # The shortest example is a listed name, which other groups match: look for another.
        for matched in taken:
            del examples[matched]
        examples |= positions.beside(foreign, taken)
    # A name also matches the group that it is in.
    names = {name: matched | 1 << group_of[name] for name, matched in names.items()}
    for name, matched in names.items():
        examples[matched] = min(examples.get(matched, name), name, key=len)
    return _classes(groups, group_of, names, examples, budget)


def _groups(lists: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Group the entries of all lists: two entries are in one group if they are in the same
    lists."""
    lists_with: dict[str, int] = {}
    for at, entries in enumerate(dict.fromkeys(tuple(dict.fromkeys(each)) for each in lists)):
        for entry in entries:
            lists_with[entry] = lists_with.get(entry, 0) | 1 << at
    groups: dict[int, list[str]] = {}
    for entry, those in lists_with.items():
        groups.setdefault(those, []).append(entry)
    return tuple(tuple(sorted(group)) for group in groups.values())


def _classes(
    groups: Sequence[tuple[str, ...]],
    group_of: dict[str, int],
    names: dict[str, int],
    examples: dict[int, str],
    budget: Budget,
) -> NameClasses:
    classes = sorted(
        (NameClass(*each) for each in examples.items()),
        key=lambda each: (each.matched.bit_count(), len(each.example), each.example),
    )
    number = {each.matched: at for at, each in enumerate(classes)}
    covers: list[list[int]] = [[] for _ in groups]
    for at, each in enumerate(classes):
        for group in members(each.matched):
            covers[group].append(at)
    return NameClasses(
        tuple(groups),
        tuple(classes),
        {name: number[matched] for name, matched in names.items()},
        tuple(map(as_bits, covers)),
        group_of,
        budget,
    )
