"""Writes a set of classes of names as a person would: as patterns, exact names, and exceptions.

The result matches exactly the names of the classes. Knows nothing of what the names mean.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from policies.analysis.names import NameClasses, members
from policies.analysis.patterns import common, meet
from policies.definitions.wildcard import is_pattern

EVERYTHING = "*"


class Region(NamedTuple):
    """A description of names: those that match one of `any` and none of `besides`. Both hold
    patterns and exact names."""

    any: tuple[str, ...]
    besides: tuple[str, ...] = ()


class _Term(NamedTuple):
    """A set of classes described by groups: those that all groups of `inside` match, and none of
    `outside`. `covered` is that set as a bit mask."""

    inside: tuple[int, ...]
    outside: tuple[int, ...]
    covered: int


class Writer:
    """Writes sets of the classes of `names`, given as bit masks, as regions."""

    def __init__(self, names: NameClasses) -> None:
        self._names = names
        # The classes that each group matches.
        self._covers = names.covers
        self._patterns = [tuple(filter(is_pattern, group)) for group in names.groups]
        self._spend = names.budget.spend
        self.written = cache(self._written)  # many rows are about the same agents, or sources

    def _written(self, chosen: int) -> tuple[Region, ...]:
        """Return regions that together match exactly the names of `chosen`. Raises
        `TooManyClasses`."""
        regions: dict[tuple[str, ...], set[str]] = {}
        left = chosen
        while left:
            term = self._term(chosen, left)
            left &= ~term.covered
            for region in self._regions(term):
                regions.setdefault(region.besides, set()).update(region.any)
        return tuple(Region(tuple(sorted(some)), besides) for besides, some in regions.items())

    def _term(self, chosen: int, left: int) -> _Term:
        """Choose a term for the next region: one that lies within the set `chosen`, and covers the
        class in `left` that the fewest groups match. Such a term mostly covers many other classes
        too."""
        matched = self._names.classes[next(iter(members(left)))].matched
        mine = list(members(matched))
        self._spend(len(mine))
        plain = [group for group in mine if not self._covers[group] & ~chosen]
        if plain:
            best = max(plain, key=lambda group: self._narrowing(group, 0, left))
            return _Term((best,), (), self._covers[best])
        others = [group for group in range(len(self._covers)) if not matched >> group & 1]
        self._spend(len(self._covers))
        covered = self._names.everything
        # Classes that no exception can remove without a chosen class: `inside` must exclude them.
        stubborn = covered & ~chosen
        for group in others:
            stubborn &= ~self._covers[group]
        inside: list[int] = []
        while stubborn:
            best = max(mine, key=lambda group: self._narrowing(group, stubborn, covered & left))
            inside.append(best)
            stubborn &= self._covers[best]
            covered &= self._covers[best]
        outside: list[int] = []
        while unwanted := covered & ~chosen:
            usable = [group for group in others if self._covers[group] & unwanted]
            best = max(usable, key=lambda group: self._taking(group, unwanted, covered & left))
            outside.append(best)
            covered &= ~self._covers[best]
        return _Term(tuple(inside), tuple(outside), covered)

    def _narrowing(self, group: int, stubborn: int, wanted: int) -> tuple[int, int, int]:
        """Rate how well `group` narrows a term, as a key for `max`: by how many unwanted classes it
        excludes, by how many wanted ones it keeps, and then by its length."""
        self._spend(1)
        covers = self._covers[group]
        return (stubborn & ~covers).bit_count(), (wanted & covers).bit_count(), self._short(group)

    def _taking(self, group: int, unwanted: int, wanted: int) -> tuple[int, int, int]:
        """Rate `group` as an exception, as a key for `max`: by how few wanted classes it takes
        away, by how many unwanted ones, and then by its length."""
        self._spend(1)
        covers = self._covers[group]
        return -(wanted & covers).bit_count(), (unwanted & covers).bit_count(), self._short(group)

    def _short(self, group: int) -> int:
        return -sum(map(len, self._names.groups[group]))

    def _regions(self, term: _Term) -> Iterable[Region]:
        """Yield the term's regions: the exact names among its entries, and its patterns with their
        exceptions."""
        names = self._names.names
        exact = tuple(
            entry
            for group in term.inside
            for entry in self._names.groups[group]
            if entry in names and term.covered >> names[entry] & 1
        )
        if exact:
            yield Region(exact)
        patterns = self._together(term.inside)
        if patterns:
            yield Region(patterns, self._exceptions(term, patterns))

    def _together(self, groups: Sequence[int]) -> tuple[str, ...]:
        """Return patterns that together match exactly the names that a pattern of each of `groups`
        matches."""
        found: tuple[str, ...] = (EVERYTHING,)
        for group in groups:
            found = tuple(
                dict.fromkeys(
                    each
                    for one in found
                    for other in self._patterns[group]
                    for each in self._common(one, other)
                )
            )
        return found

    def _common(self, one: str, other: str) -> tuple[str, ...]:
        return (other,) if one == EVERYTHING else common(one, other, self._spend)

    def _exceptions(self, term: _Term, patterns: Sequence[str]) -> tuple[str, ...]:
        """Return the exceptions of a term: the entries of its `outside` groups, without those that
        match nothing that `patterns` match."""
        reached = self._names.everything
        for group in term.inside:
            reached &= self._covers[group]
        names = self._names.names
        found = []
        for group in term.outside:
            for entry in self._names.groups[group]:
                if entry in names:
                    met = bool(reached >> names[entry] & 1)
                else:
                    met = any(meet(entry, pattern, self._spend) for pattern in patterns)
                if met:
                    found.append(entry)
        return tuple(sorted(found))
