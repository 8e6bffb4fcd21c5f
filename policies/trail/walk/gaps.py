"""Keeps account of the gaps of a log: missing openings, with the `redact` entries that excuse them,
and times in which the log recorded nothing, not even a heartbeat.

A `redact` entry comes after the entries whose openings it erased, so only the end of the log tells
if a missing opening is a finding. Memory: a bit for each missing opening's entry, in blocks that
exist only where something is missing.

A log writes a heartbeat when it has had no entry for an hour. So a longer silence means that its
service was stopped, or that it was kept from writing: decisions of that time, if there were any,
are in no log. No log can tell which of the two it was.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from policies.ground.canonical import micros
from policies.trail.findings import Finding, Reason

REDACT = "redact"
_BLOCK = 4096


class Erasures:
    """The entries of a walk whose openings are missing and that no `redact` entry has excused so
    far."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self.excused = 0
        """The number of entries with missing openings that a `redact` entry excused."""

    def missing(self, seq: int) -> None:
        """Note that an opening of entry `seq` is missing."""
        place, bit = divmod(seq, _BLOCK)
        self._blocks[place] = self._blocks.get(place, 0) | 1 << bit

    def redact(self, first: int, last: int) -> None:
        """Take in a range of a `redact` entry, which says that the openings of the entries `first`
        to `last`, both included, were erased."""
        low, high = first // _BLOCK, last // _BLOCK
        # A range may span far more blocks than exist.
        few = high - low < len(self._blocks)
        for place in range(low, high + 1) if few else list(self._blocks):
            block = self._blocks.get(place, 0)
            if not block or not low <= place <= high:
                continue
            begin = max(first - place * _BLOCK, 0)
            count = min(last - place * _BLOCK, _BLOCK - 1) - begin + 1
            left = block & ~(((1 << count) - 1) << begin)
            self.excused += block.bit_count() - left.bit_count()
            if left:
                self._blocks[place] = left
            else:
                del self._blocks[place]

    def findings(self, most: int) -> list[Finding]:
        """Return a finding for each of the first `most` entries whose openings are missing without
        an excuse."""
        return [finding(seq) for seq in self.pending(most)]

    def pending(self, most: int) -> list[int]:
        """Return the numbers (`seq`) of the first `most` entries whose openings are missing without
        an excuse."""
        found: list[int] = []
        for place in sorted(self._blocks):
            block = self._blocks[place]
            while block and len(found) < most:
                bit = (block & -block).bit_length() - 1
                block &= block - 1
                found.append(place * _BLOCK + bit)
        return found

    def count(self) -> int:
        """Return the number of entries that have a missing opening without an excuse."""
        return sum(block.bit_count() for block in self._blocks.values())


def finding(seq: int, path: str | None = None, eid: str | None = None) -> Finding:
    opening = "an opening" if path is None else f"the opening of `{path}`"
    message = f"seq {seq}: {opening} is missing, though no erasure is recorded"
    return Finding(seq, Reason.OPENING_MISSING, message, eid)


def erased_ranges(entry: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the ranges of entries, both ends included, whose openings a `redact` entry erased. A
    range that reaches beyond the `redact` entry itself is left out. A malformed list excuses
    nothing."""
    events = entry["pub"].get("events")
    if type(events) is not list:
        return []
    ranges = []
    for each in events:
        if type(each) is list and len(each) == 2 and all(type(seq) is int for seq in each):
            first, last = each
            if 0 <= first <= last < entry["seq"]:
                ranges.append((first, last))
    return ranges


SECOND = 1_000_000
LONGEST = 3660 * SECOND
"""The longest time without entries, in microseconds, that is not reported: an hour, and a minute in
which a busy service may be late with its heartbeat."""
MOST = 20
"""The most silences that are kept, the longest ones, to bound memory."""
_HOUR = len("2026-01-01T00")


class Silence(NamedTuple):
    """A time without entries. `seq` is the number of the entry that ended it; `begin` and `end` are
    the times at which the entry before it and that entry were recorded."""

    seq: int
    begin: str
    end: str

    @property
    def duration(self) -> int:
        """The length of the silence in microseconds."""
        return micros(self.end) - micros(self.begin)


def silence(seq: int, begin: str, end: str) -> Silence | None:
    """Return the silence between two entries recorded at `begin` and `end`; None if they are no
    further apart than `LONGEST`. `seq` is the number of the second. Both times must have been
    verified."""
    # Called where an hour begins, and for entries that get the full check.
    if begin[:_HOUR] == end[:_HOUR]:
        return None
    found = Silence(seq, begin, end)
    return found if found.duration > LONGEST else None


class Silences:
    """The silences of a walk: how many there are, and the longest of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[Silence] = []

    def between(self, seq: int, begin: str, end: str) -> None:
        """Note the silence before entry number `seq`, if it is long enough. `begin` and `end` are
        the times of the entry before and of that one; `begin` is empty for a first entry."""
        if begin[:_HOUR] != end[:_HOUR] and begin and (found := silence(seq, begin, end)):
            self.add([found])

    def add(self, found: Iterable[Silence]) -> None:
        for each in found:
            self.count += 1
            self._kept.append(each)
            if len(self._kept) > MOST:
                # Of two that are equally long, the first stays.
                self._kept.remove(min(reversed(self._kept), key=_duration))

    def longest(self) -> list[Silence]:
        """Return the longest silences, at most `MOST`, in the order in which they occurred."""
        return list(self._kept)


def _duration(each: Silence) -> int:
    return each.duration
