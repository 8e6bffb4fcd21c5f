"""Sums by which two sets of counts are compared without holding them: one log may count millions
of sessions.

A sum is that of count times weight, over all values of a dimension and time bucket. The weight of a
value follows from a secret that is drawn for one comparison. So counts that differ have other sums,
even if an attacker chose the counts and values. Knows neither log nor database.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from control_api.store.counters.dimensions import BUCKETS, HOUR, KEPT, Dimension

SECRET_BYTES = 32
SLACK = HOUR
"""Buckets this close to their end are not compared: another process may have dropped them."""
_Cell = tuple[int, int]  # dimension, bucket


class Difference(NamedTuple):
    """A dimension and time bucket whose counts differ: how many allowed and denied decisions are
    stored, and how many are in the log, over all values. They may be equal, and the values not."""

    dimension: Dimension
    bucket: int
    stored: tuple[int, int]
    counted: tuple[int, int]

    def text(self) -> str:
        when = "" if self.dimension not in BUCKETS else f", bucket {self.bucket}"
        return (
            f"the counts by `{self.dimension.name}`{when} are {self.stored[0]} allowed and "
            f"{self.stored[1]} denied, and those of the entries {self.counted[0]} and "
            f"{self.counted[1]}" + (", of other values" if self.stored == self.counted else "")
        )


class CountSums:
    """The sums of one set of counts. Buckets below `floors` are left out."""

    def __init__(self, secret: bytes, floors: Mapping[int, int]) -> None:
        self._floors = floors
        # For each cell: both sums with weights, and both without.
        self.cells: dict[_Cell, list[int]] = {}

        @lru_cache(maxsize=4096)
        def weight(value: str) -> int:
            digest = hashlib.blake2b(value.encode(), key=secret, digest_size=16).digest()
            return int.from_bytes(digest)

        self._weight = weight

    def add(self, facet: int, value: str, bucket: int, allowed: int, denied: int) -> None:
        """Adds the counts of one value. Raises `TypeError` or `AttributeError` unless all are of
        these types, which SQLite does not enforce."""
        if bucket < self._floors.get(facet, bucket):
            return
        weight = self._weight(value)
        cell = self.cells.setdefault((facet, bucket), [0, 0, 0, 0])
        for at, count in enumerate((allowed, denied)):
            if type(count) is not int:
                raise TypeError(f"`{count!r}` is no count")
            cell[at] += count * weight
            cell[at + 2] += count


def floors(now: int, cutoff: int) -> dict[int, int]:
    """The first time bucket to compare, by dimension: those before are dropped at about `now`, or
    also count entries of before `cutoff`, which were purged (microseconds)."""
    first = {}
    for dimension, kept in KEPT.items():
        width = BUCKETS[dimension]
        first[int(dimension)] = max((now - kept + SLACK) // width, -(-cutoff // width))
    return first


def difference(
    stored: CountSums, counted: CountSums, first: Mapping[int, int]
) -> Difference | None:
    """The first difference in the buckets from `first` on; None if there is none. Counts of
    dimensions that this version does not know are left out."""
    nothing = [0, 0, 0, 0]
    for cell in sorted(stored.cells.keys() | counted.cells.keys()):
        facet, bucket = cell
        if facet not in _KNOWN or bucket < first.get(facet, bucket):
            continue
        here, there = stored.cells.get(cell, nothing), counted.cells.get(cell, nothing)
        if here != there:
            totals = (here[2], here[3]), (there[2], there[3])
            return Difference(Dimension(facet), bucket, *totals)
    return None


_KNOWN = frozenset(map(int, Dimension))
