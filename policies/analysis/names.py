"""Splits all names into classes that a list of entries can't tell apart.

An entry is an exact name or a pattern. Two names belong to the same class if the same entries match
both. There are finitely many classes, and a search over the positions that a name can have in all
patterns at once, shortest names first, finds each with its shortest example. Every name that an
entry mentions is a class of its own.

Knows nothing of what the names mean.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policies.definitions.wildcard import is_pattern, matcher, steps
from policies.ground.json_body import MAX_IDENTIFIER

MAX_POSITIONS = 20_000
"""How many combinations of positions in the patterns are followed; patterns can be written that
have exponentially many."""

# Characters that a name may have, for where any will do: readable ones first.
_READABLE = "xyzabcdefghijklmnopqrstuvw0123456789"


class TooManyClasses(Exception):
    """the patterns interact in too many ways to be analysed"""

    def __init__(self, patterns: Sequence[str]) -> None:
        shown = ", ".join(f"`{each}`" for each in patterns[:8])
        more = f" and {len(patterns) - 8} more" if len(patterns) > 8 else ""
        super().__init__(
            f"the patterns {shown}{more} overlap in more than {MAX_POSITIONS:,} ways, which is more"
            " than can be analysed: use fewer `*` in each, or exact names"
        )
        self.patterns = tuple(patterns)


class NameClass(NamedTuple):
    """Names that the same entries match. `matched` has bit i set if entry i matches; `example` is
    the shortest such name. With `exact`, the example is the only one."""

    matched: int
    example: str
    exact: bool


class NameClasses(NamedTuple):
    """All classes of all possible names, for these entries."""

    entries: tuple[str, ...]
    classes: tuple[NameClass, ...]

    def matched_by(self, entries: Iterable[str]) -> tuple[NameClass, ...]:
        """The classes that one of `entries` matches."""
        bits = sum({1 << self.entries.index(entry) for entry in entries})
        return tuple(each for each in self.classes if each.matched & bits)


def name_classes(entries: Iterable[str]) -> NameClasses:
    """The classes that `entries` tell apart. Raises `TooManyClasses`."""
    listed = tuple(dict.fromkeys(entries))
    patterns = [(bit, entry) for bit, entry in enumerate(listed) if is_pattern(entry)]
    names = {entry: 1 << bit for bit, entry in enumerate(listed) if not is_pattern(entry)}
    classes = []
    matchers = [(1 << bit, matcher([pattern])) for bit, pattern in patterns]
    for name, own in names.items():
        matched = own
        for bit, matches in matchers:
            if matches(name):
                matched |= bit
        classes.append(NameClass(matched, name, exact=True))
    unnamed = _unnamed(patterns, names.keys())
    classes += [NameClass(matched, example, exact=False) for matched, example in unnamed.items()]
    return NameClasses(listed, tuple(classes))


def _unnamed(patterns: Sequence[tuple[int, str]], names: Iterable[str]) -> dict[int, str]:
    """For each combination of patterns that a name outside of `names` can match, the shortest such
    name."""
    positions = _Positions(patterns)
    found: dict[int, str] = {}
    taken: set[int] = set()
    known = frozenset(names)
    for at, name in positions.reachable():
        matched = positions.matched(at)
        if matched in found or not name:
            continue
        if name in known:
            taken.add(matched)
        else:
            found[matched] = name
    missing = taken - found.keys()
    if missing:
        # The shortest example is a name of its own: look for another, beside the listed names.
        found |= positions.beside(known, missing)
    return found


class _Positions:
    """Where a name can be in all patterns at once, as one number: each pattern has a bit for each
    of its steps, and one for its end."""

    def __init__(self, patterns: Sequence[tuple[int, str]]) -> None:
        self._patterns = patterns
        self.start = self._loops = self._any = 0
        self._ends: list[tuple[int, int]] = []
        self._steps: dict[str, int] = {}
        base = 0
        for bit, pattern in patterns:
            found, open_end = steps(pattern)
            self.start |= 1 << base
            for offset, (character, after_run) in enumerate(found):
                here = 1 << (base + offset)
                if after_run:
                    self._loops |= here
                if character is None:
                    self._any |= here
                else:
                    self._steps[character] = self._steps.get(character, 0) | here
            end = 1 << (base + len(found))
            if open_end:
                self._loops |= end
            self._ends.append((end, 1 << bit))
            base += len(found) + 1
        self.other = next(_unused(self._steps.keys()))
        self._all_ends = sum(end for end, _ in self._ends)

    def after(self, at: int, character: str) -> int:
        """The positions after one more character."""
        taken = at & (self._any | self._steps.get(character, 0))
        return taken << 1 | (at & self._loops)

    def matched(self, at: int) -> int:
        """The entries that match a name which ends here."""
        if not at & self._all_ends:
            return 0
        return sum(bit for end, bit in self._ends if at & end)

    def characters(self, at: int) -> Iterator[str]:
        """Those that lead somewhere in particular from here, and one that stands for all others."""
        yield self.other
        for character, asked in self._steps.items():
            if at & asked:
                yield character

    def reachable(self) -> Iterator[tuple[int, str]]:
        """All combinations of positions, each with the shortest name that leads there; the empty
        name first. Raises `TooManyClasses`."""
        seen: set[int] = set()  # without the start, which a name may lead back to
        ring = [(self.start, "")]
        for _ in range(MAX_IDENTIFIER + 1):
            following = []
            for at, name in ring:
                yield at, name
                for character in self.characters(at):
                    there = self.after(at, character)
                    if there not in seen:
                        seen.add(there)
                        following.append((there, name + character))
                if len(seen) > MAX_POSITIONS:
                    raise TooManyClasses([pattern for _, pattern in self._patterns])
            ring = following

    def beside(self, names: frozenset[str], wanted: set[int]) -> dict[int, str]:
        """For each of the `wanted` combinations of entries, the shortest name that matches just
        these and is not in `names`; none where all such names are."""
        beginnings = {name[:length] for name in names for length in range(len(name) + 1)}
        following_of: dict[str, set[str]] = {}
        for beginning in beginnings:
            if beginning:
                following_of.setdefault(beginning[:-1], set()).add(beginning[-1])
        found: dict[int, str] = {}
        # Where a name is the beginning of a listed one, what has been read matters too.
        seen: set[tuple[int, str | None]] = set()
        ring = [(self.start, "")]
        for _ in range(MAX_IDENTIFIER + 1):
            further = []
            for at, name in ring:
                matched = self.matched(at)
                if matched in wanted and matched not in found and name and name not in names:
                    found[matched] = name
                    if len(found) == len(wanted):
                        return found
                listed = following_of.get(name, set())
                unlisted = next(_unused({*self._steps, *listed}))
                for character in sorted({*self.characters(at), *listed, unlisted}):
                    longer = name + character
                    there = self.after(at, character)
                    key = there, longer if longer in beginnings else None
                    if key not in seen:
                        seen.add(key)
                        further.append((there, longer))
            ring = further
        return found


def _unused(characters: Iterable[str]) -> Iterator[str]:
    """Characters besides these, readable ones first."""
    used = {*characters, "*", "?"}
    for character in _READABLE:
        if character not in used:
            yield character
    yield from (chr(code) for code in range(0xA1, 0xD800) if chr(code) not in used)
