"""Where a name can be in many patterns at once: an automaton over all of them.

A state is one number with a bit for each step of each pattern, and one for its end. Knows what
`policies.definitions.wildcard.steps` says of a pattern, and nothing of what names mean.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from policies.definitions.wildcard import steps
from policies.ground.json_body import MAX_IDENTIFIER

Spend = Callable[[int], None]
"""Told how much work is to come; raises once that is too much."""

# Characters that a name may have, for where any will do: readable ones first.
_READABLE = "xyzabcdefghijklmnopqrstuvw0123456789"
_STATE = 10
"""What a new state costs; one attempted transition costs 1."""


class Positions:
    """The automaton of groups of patterns. A name matches a group if it matches one of them."""

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
        """The state after one more character."""
        taken = state & (self._any | self._asked.get(character, 0))
        return self._settle(taken << 1 | (state & self._loops))

    def _settle(self, state: int) -> int:
        """A group with an open end that was reached matches whatever follows, so that its other
        positions don't matter any more. Without this, a list of many `*word*` has a state for each
        subset of its words."""
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
        """The groups that match a name which ends here, as bits."""
        found = 0
        for group in self._groups_at(state & self._ends):
            found |= 1 << group
        return found

    def matched_by(self, name: str) -> int:
        """The groups that match `name`."""
        self._spend(len(name) * self._weight)
        state = self.start
        for character in name:
            state = self.after(state, character)
            if not state:
                break
        return self.matched(state)

    def _characters(self, state: int) -> Iterator[str]:
        """Those that lead somewhere in particular from here, and one that stands for all others."""
        yield self.other
        for character, asked in self._asked.items():
            if state & asked:
                yield character

    def shortest(self) -> dict[int, str]:
        """For each combination of groups that names match, the shortest such name."""
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
        """For each of the `wanted` combinations of groups, the shortest name that matches just
        these and is not in `names`; none where all such names are. `names` has what each matches.
        """
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
        """The characters to try: also those of listed names, and one that no listed name has."""
        tried = {*self._characters(state), *listed}
        self._spend((len(self._asked) + len(tried)) * self._weight)
        if self.other in listed:
            tried.add(next(unused({*self._asked, *listed})))
        return sorted(tried)


def _lowest(bits: int) -> int:
    return bits & -bits


def unused(characters: Iterable[str]) -> Iterator[str]:
    """Characters besides these, readable ones first."""
    used = {*characters, "*", "?"}
    for character in _READABLE:
        if character not in used:
            yield character
    yield from (chr(code) for code in range(0xA1, 0xD800) if chr(code) not in used)
