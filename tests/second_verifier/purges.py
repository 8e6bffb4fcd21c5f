"""Purges: what a `purge` entry says was removed, against itself and against the file; and whether
one says that retention removed what precedes the oldest entry."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tests.second_verifier.entry_rules import is_time
from tests.second_verifier.findings import Finding
from tests.second_verifier.notes import hash_of
from tests.second_verifier.tree import Tree, root_of


class Purges:
    """The purges of one file."""

    def __init__(self, oldest: int) -> None:
        self._oldest = oldest
        self._removing: list[tuple[int, bool | None, Any]] = []
        self.findings: list[Finding] = []
        self._before: tuple[int, list[bytes]] = (0, [])
        self.first_prev: str | None = None
        """The `prev` of the file's first entry."""

    def begins_after(self, tree: Tree) -> None:
        """The tree of the entries before the file."""
        self._before = (tree.size, list(tree.frontier))

    def entry(self, pub: dict[str, Any], seq: int, proven: bool | None = None) -> None:
        """Checks a `purge` entry. `proven` is whether the file proves one that it brings along,
        None for its own entries."""
        size = pub.get("size")
        if type(size) is int and size == self._oldest:
            self._removing.append((seq, proven, pub.get("cutoff")))
        if not self._fits(pub, seq):
            found = Finding("purge_mismatch", "the purge contradicts itself or the file", seq)
            self.findings.append(found)

    def conclude(self, covered: int | None) -> None:
        """At the end: `covered` is the size of the largest checkpoint by a trusted key, None
        without one."""
        start = self._before[0]
        if self._oldest == 0 or self.first_prev is None:
            return
        shown = bool(self._covered(covered))
        excused = self._removing and covered is None and start != self._oldest
        if not shown and not excused:
            message = "no proven purge removed what precedes the oldest entry"
            self.findings.append(Finding("purge_uncovered", message, start))

    def cutoff(self, covered: int | None) -> str | None:
        """The time before which what precedes the oldest entry was recorded, as a covered purge
        says it; None if none does."""
        times = [each for each in self._covered(covered) if is_time(each)]
        return max(times) if times and self._oldest else None

    def _covered(self, covered: int | None) -> list[Any]:
        """The `cutoff` of each covered purge of just what precedes the oldest entry."""
        return [
            cutoff
            for seq, proven, cutoff in self._removing
            if (seq < (covered or 0) if proven is None else proven)
        ]

    def _fits(self, pub: dict[str, Any], seq: int) -> bool:
        size, hashes = pub.get("size"), pub.get("frontier")
        if type(size) is not int or not isinstance(hashes, list) or not 0 <= size <= seq:
            return False
        if size == 0:
            return True
        known = [each for text in hashes if (each := hash_of(text)) is not None]
        if len(known) != len(hashes) or len(known) != size.bit_count():
            return False
        begins_here = size == self._before[0]
        return b64encode(root_of(known)).decode() == pub.get("root") and (
            not begins_here or (known == self._before[1] and pub.get("last") == self.first_prev)
        )
