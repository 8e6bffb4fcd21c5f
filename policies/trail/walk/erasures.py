"""Keeps account of openings that are missing, and of the `redact` entries that excuse them.

A `redact` entry comes after the entries whose openings it erased, so whether a missing opening is a
finding is known only at the end of the log. Memory: a bit for each missing opening's entry, in
blocks that exist only where something is missing.
"""

from typing import Any

from policies.trail.findings import Finding, Reason

KIND = "redact"
_BLOCK = 4096


class Erasures:
    """The missing openings of a walk that no `redact` entry has excused so far."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self.excused = 0
        """Entries with missing openings that a `redact` entry excused."""

    def missing(self, seq: int) -> None:
        """An opening of entry `seq` is missing."""
        place, bit = divmod(seq, _BLOCK)
        self._blocks[place] = self._blocks.get(place, 0) | 1 << bit

    def redact(self, first: int, last: int) -> None:
        """A `redact` entry says that the openings of these entries were erased, both included."""
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
        """The entries whose openings are missing without an excuse: the first `most` of them."""
        return [finding(seq) for seq in self.pending(most)]

    def pending(self, most: int) -> list[int]:
        """The first `most` of those entries, by their `seq`."""
        found: list[int] = []
        for place in sorted(self._blocks):
            block = self._blocks[place]
            while block and len(found) < most:
                bit = (block & -block).bit_length() - 1
                block &= block - 1
                found.append(place * _BLOCK + bit)
        return found

    def count(self) -> int:
        """How many entries have a missing opening without an excuse."""
        return sum(block.bit_count() for block in self._blocks.values())


def finding(seq: int, path: str | None = None, eid: str | None = None) -> Finding:
    opening = "an opening" if path is None else f"the opening of `{path}`"
    message = f"seq {seq}: {opening} is missing, though no erasure is recorded"
    return Finding(seq, Reason.OPENING_MISSING, message, eid)


def erased_ranges(entry: dict[str, Any]) -> list[tuple[int, int]]:
    """The ranges of entries, both ends included, whose openings a `redact` entry erased. Only
    entries before it count. A malformed list excuses nothing."""
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
