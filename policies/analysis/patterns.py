"""Finds the names that patterns match together: by an automaton over all of them, and for two
patterns as patterns again.

A state of the automaton is one integer, with a bit for each step of each pattern, and one for its
end. Knows what `policies.definitions.wildcard.steps` says of a pattern, and nothing of what names
mean.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache

from policies.definitions.wildcard import Matcher, Step, Steps, is_pattern, matcher, steps
from policies.ground.canonical import MAX_IDENTIFIER

Spend = Callable[[int], None]
"""A function that is called with the number of steps of work to come, and raises if they are too
many."""

# Characters that a name may have, for where any will do: readable ones first.
_READABLE = "xyzabcdefghijklmnopqrstuvw0123456789"
_STATE = 10
"""The steps that a new state costs; to try one transition costs 1."""


class Positions:
    """The automaton of groups of patterns. A name matches a group if it matches one of the group's
    patterns."""

    def __init__(self, groups: Sequence[Iterable[str]], spend: Spend) -> None:
        self._spend = spend
        self._loops = self._any = self._ends = self._open_ends = 0
        self._asked: dict[str, int] = {}
        self._group_at: dict[int, int] = {}
        self._bits_of: list[int] = []
        start = base = 0
        for group, patterns in enumerate(groups):
            first = base
            for pattern in patterns:
                start |= 1 << base
                base = self._add(pattern, base, group)
            self._bits_of.append((1 << base) - (1 << first))
        self._weight = 1 + base // 4096  # larger numbers take longer
        self._settled: dict[int, tuple[int, int]] = {}
        self.start = self._settle(start)
        self.other = next(unused(self._asked))

    def _add(self, pattern: str, base: int, group: int) -> int:
        found, open_end = steps(pattern)
        for offset, (character, after_run) in enumerate(found):
            here = 1 << (base + offset)
            if after_run:
                self._loops |= here
            if character is None:
                self._any |= here
            else:
                self._asked[character] = self._asked.get(character, 0) | here
        end = base + len(found)
        self._ends |= 1 << end
        self._group_at[end] = group
        if open_end:
            self._loops |= 1 << end
            self._open_ends |= 1 << end
        return end + 1

    def after(self, state: int, character: str) -> int:
        """Return the state that follows `state` after one more character."""
        taken = state & (self._any | self._asked.get(character, 0))
        return self._settle(taken << 1 | (state & self._loops))

    def _settle(self, state: int) -> int:
        """Drop the positions of a group that no longer matter: once it has reached a pattern's open
        end (a final `*`), it matches whatever follows. Without this, a list of many `*word*` has a
        state for each subset of its words."""
        reached = state & self._open_ends
        if not reached:
            return state
        if reached not in self._settled:
            keep, ends = -1, 0
            for group in set(self._groups_at(reached)):
                mine = self._bits_of[group]
                keep &= ~mine
                ends |= _lowest(mine & self._open_ends)
            self._settled[reached] = keep, ends
        keep, ends = self._settled[reached]
        return state & keep | ends

    def _groups_at(self, ends: int) -> Iterator[int]:
        self._spend(ends.bit_count() * self._weight)
        while ends:
            end = _lowest(ends)
            yield self._group_at[end.bit_length() - 1]
            ends ^= end

    def matched(self, state: int) -> int:
        """Return the set of groups, as a bit mask, that match a name which ends in this state."""
        found = 0
        for group in self._groups_at(state & self._ends):
            found |= 1 << group
        return found

    def matched_by(self, name: str) -> int:
        """Return the set of groups, as a bit mask, that match `name`."""
        self._spend(len(name) * self._weight)
        state = self.start
        for character in name:
            state = self.after(state, character)
            if not state:
                break
        return self.matched(state)

    def _characters(self, state: int) -> Iterator[str]:
        """Yield the characters that some pattern requires in this state, and one that stands for
        all others."""
        yield self.other
        for character, asked in self._asked.items():
            if state & asked:
                yield character

    def shortest(self) -> dict[int, str]:
        """Return, for each combination of groups that some name matches, the shortest such name."""
        found: dict[int, str] = {}
        seen: set[int] = set()  # without the start, which a name may lead back to
        ring = [(self.start, "")]
        for _ in range(MAX_IDENTIFIER):
            ring = [
                (state, longer)
                for before, name in ring
                for state, longer in self._following(before, name, seen)
            ]
            for state, name in ring:
                found.setdefault(self.matched(state), name)
        return found

    def _following(self, before: int, name: str, seen: set[int]) -> Iterator[tuple[int, str]]:
        cost = len(self._asked)
        for character in self._characters(before):
            state = self.after(before, character)
            if state not in seen:
                seen.add(state)
                cost += _STATE
                yield state, name + character
        self._spend(cost * self._weight)

    def beside(self, names: Mapping[str, int], wanted: Set[int]) -> dict[int, str]:
        """Return, for each combination of groups in `wanted`, the shortest name that matches just
        these groups and is not in `names`. `names` maps names to the groups that they match. A
        combination is left out if all its names are in `names`."""
        listed = [name for name, matched in names.items() if matched in wanted]
        following: dict[str, set[str]] = {}
        for name in listed:
            self._spend(len(name) * _STATE)
            for length in range(len(name)):
                following.setdefault(name[:length], set()).add(name[length])
        beginnings = {*following, *listed}
        known = frozenset(listed)
        found: dict[int, str] = {}
        # Where a name is the beginning of a listed one, what has been read matters too.
        seen: set[tuple[int, str | None]] = set()
        ring = [(self.start, "")]
        for _ in range(MAX_IDENTIFIER):
            longer: list[tuple[int, str]] = []
            for before, name in ring:
                for character in self._beside(before, following.get(name, ())):
                    state, extended = self.after(before, character), name + character
                    key = state, extended if extended in beginnings else None
                    if key in seen:
                        continue
                    seen.add(key)
                    longer.append((state, extended))
                    matched = self.matched(state)
                    if matched in wanted and extended not in known:
                        found.setdefault(matched, extended)
                if len(found) == len(wanted):
                    return found
            self._spend(len(longer) * _STATE * self._weight)
            ring = longer
        return found

    def _beside(self, state: int, listed: Iterable[str]) -> list[str]:
        """Return the characters to try in this state: those of `_characters`, the next characters
        of listed names, and one that no listed name has there."""
        tried = {*self._characters(state), *listed}
        self._spend((len(self._asked) + len(tried)) * self._weight)
        if self.other in listed:
            tried.add(next(unused({*self._asked, *listed})))
        return sorted(tried)


def _lowest(bits: int) -> int:
    return bits & -bits


def unused(characters: Iterable[str]) -> Iterator[str]:
    """Yield characters that are not among these and are no wildcards, readable ones first."""
    used = {*characters, "*", "?"}
    for character in _READABLE:
        if character not in used:
            yield character
    yield from (chr(code) for code in range(0xA1, 0xD800) if chr(code) not in used)


_Place = tuple[int, int]
"""A position in two patterns at once: the number of steps of each that have been taken."""
_Move = tuple[Step, _Place]


def common(one: str, other: str, spend: Spend) -> tuple[str, ...]:
    """Return patterns that together match exactly the names that both `one` and `other` match; an
    exact name is a pattern, too. There can be exponentially many: then `spend` raises."""
    both = _Both(steps(one), steps(other), spend)
    found: dict[str, None] = {}
    pending = [("", (0, 0))]
    while pending:
        text, place = pending.pop()
        if place == both.end:
            found[text + "*" * both.open_end] = None
        for step, there in both.moves(place):
            if there in both.useful:
                spend(1 + len(text) // 64)
                pending.append((text + _text(step), there))
    return tuple(found)


def meet(one: str, other: str, spend: Spend) -> bool:
    """Return whether there is a name that both patterns match."""
    both = _Both(steps(one), steps(other), spend)
    return (0, 0) in both.useful


class _Both:
    """An automaton that matches two patterns at once. A character that takes a step of one pattern
    also takes a step of the other, or is part of a run (`*`) of the other."""

    def __init__(self, one: Steps, other: Steps, spend: Spend) -> None:
        self._one, self._other = one, other
        self.end = len(one.steps), len(other.steps)
        self.open_end = one.open_end and other.open_end
        self.useful = self._leading_to_the_end(spend)

    def moves(self, place: _Place) -> list[_Move]:
        at, there = place
        mine = self._one.steps[at] if at < self.end[0] else None
        its = self._other.steps[there] if there < self.end[1] else None
        found: list[_Move] = []
        if mine and its and (mine.character == its.character or None in (mine[0], its[0])):
            # Both take the same character, after a run if both allow one.
            met = its.character if mine.character is None else mine.character
            found.append((Step(met, mine.after_run and its.after_run), (at + 1, there + 1)))
        # One pattern is in a run while the other takes its next step.
        if its and (mine.after_run if mine else self._one.open_end):
            found.append((its, (at, there + 1)))
        if mine and (its.after_run if its else self._other.open_end):
            found.append((mine, (at + 1, there)))
        return found

    def _leading_to_the_end(self, spend: Spend) -> set[_Place]:
        """Return the positions from which both patterns can still be matched to their ends, of
        those that the start leads to."""
        before: dict[_Place, list[_Place]] = {(0, 0): []}
        pending = [(0, 0)]
        while pending:
            place = pending.pop()
            spend(2)
            for _, there in self.moves(place):
                if there not in before:
                    before[there] = []
                    pending.append(there)
                before[there].append(place)
        if self.end not in before:
            return set()
        useful = {self.end}
        pending = [self.end]
        while pending:
            for place in before[pending.pop()]:
                if place not in useful:
                    useful.add(place)
                    pending.append(place)
        return useful


def _text(step: Step) -> str:
    return ("*" if step.after_run else "") + (step.character or "?")


def overlaps_with(others: Iterable[str]) -> Matcher:
    """Return a function that tells if a name or pattern can match a name that one of `others`
    matches."""
    listed = tuple(others)
    matches = matcher(listed)

    def overlaps(entry: str) -> bool:
        if is_pattern(entry):
            return any(_overlap(entry, each) for each in listed)
        return matches(entry)

    return overlaps


@lru_cache(maxsize=1 << 16)
def _overlap(one: str, other: str) -> bool:
    # The work is bounded by the product of both lengths, so that it needs no budget.
    return meet(one, other, lambda _steps: None)
