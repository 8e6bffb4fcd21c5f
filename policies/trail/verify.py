"""Verifies the rows of a log: checks the chain of its entries, their columns and openings, and the
head row. The package `walk` knows the rules of a valid entry.

Knows no database and no network. Memory stays flat: one hash per complete subtree, one counter per
source, and a bit for each entry whose opening is missing.

    verifier = Verifier(log)
    for row in rows: verifier.feed(row)         the first finding ends the walk
    report = verifier.finish(head)

Doesn't look for duplicate ids, which would take unbounded memory: the unique index over `eid`
excludes them, and that column is compared with the bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from policies.trail.entry import StoredRow
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.removal import Purged
from policies.trail.walk.gaps import Erasures, Silences
from policies.trail.walk.joined_walk import JoinedWalk
from policies.trail.walk.range_result import ChainEnd, Source
from policies.trail.walk.range_walk import RangeWalk

_TOGETHER = 64
"""The number of rows that are checked as one batch, column by column as far as possible."""


class LogHead(NamedTuple):
    """The stored row of a log's head: its number of entries, last leaf hash, last time, and
    frontier."""

    size: int
    last_leaf: bytes
    last_ts: str
    frontier: bytes


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The result of verifying rows. `total` counts the entries walked, of every kind, and `events`
    the decisions among them, up to the first finding. `broken_at` is the `event_id` of the first
    entry that fails, or its `seq` in digits. `reason` is the text of `finding`."""

    valid: bool
    total: int
    events: int
    first_seq: int | None
    last_seq: int | None
    head_hash: str | None
    root_hash: str
    broken_at: str | None
    reason: str | None
    finding: Finding | None = None


class Verifier:
    """Verifies the rows of the log named `log` in order, from its first entry, or from the one that
    follows a purged prefix."""

    def __init__(self, log: str, *, after: Purged | None = None) -> None:
        """Begin a walk. `after` are the purged entries, whose tree the walk continues. Raises
        `ValueError` if their frontier doesn't fit their number."""
        last_leaf = b"" if after is None else after.last_leaf
        tree = Frontier() if after is None else after.tree()
        self._walk = JoinedWalk(log, tree, last_leaf)
        self._expected: dict[int, set[bytes]] = {}
        self._broken: Finding | None = None

    @property
    def erasures(self) -> Erasures:
        """The missing openings found so far that no `redact` entry has excused."""
        return self._walk.erasures

    @property
    def source_ends(self) -> Mapping[Source, ChainEnd]:
        """The number and hash of the last record of each enforcement point's spool so far, by the
        spool's source id and instance."""
        return self._walk.sources

    @property
    def silences(self) -> Silences:
        return self._walk.silences

    def feed(self, row: StoredRow) -> bool:
        """Check the next entry. Return False once there is a finding: to feed more changes
        nothing."""
        return self.feed_all((row,))

    def feed_all(self, rows: Iterable[StoredRow]) -> bool:
        """Check the next entries until one fails. Return True if none did."""
        if self._broken is None:
            self._feed(rows)
        return self._broken is None

    def expect(self, size: int, root: bytes) -> None:
        """Expect a checkpoint during the walk: at `size` entries, the tree must have this root. A
        size before the walk's first entry is ignored."""
        self._expected.setdefault(size, set()).add(root)

    def reached(self) -> tuple[Frontier, bytes, Finding | None]:
        """Return the tree and the last leaf hash so far, and the finding that ended the walk, None
        if there is none."""
        return self._walk.tree, self._walk.last_leaf, self._broken

    def finish(self, head: LogHead | None = None) -> VerificationReport:
        """End the walk and return the report. If a head row is given, compare it with the entries
        first."""
        walk = self._walk
        size = walk.tree.size
        if self._broken is None and head is not None:
            fault = self._head_fault(head)
            if fault is not None:
                self._broken = Finding(min(size, head.size), Reason.HEAD_MISMATCH, fault)
        if self._broken is None:
            # Only now: the `redact` entry comes after the entries whose openings it erased.
            self._broken = next(iter(self.erasures.findings(1)), None)
        found, walked = self._broken, walk.walked()
        return VerificationReport(
            valid=found is None,
            total=walked,
            events=walk.decisions,
            first_seq=walk.base if walked else None,
            last_seq=size - 1 if walked else None,
            head_hash=walk.last_leaf.hex() if size else None,
            root_hash=walk.tree.root().hex(),
            broken_at=None if found is None else found.place,
            reason=None if found is None else found.message,
            finding=found,
        )

    def _feed(self, rows: Iterable[StoredRow]) -> None:
        part, read = self._part(), list[StoredRow]()
        try:
            for row in rows:
                read.append(row)
                if len(read) < _TOGETHER and part.end + len(read) not in self._expected:
                    continue
                held, read = part.take(read), []
                if not held:
                    break
                if part.end in self._expected:
                    self._join(part)
                    part = self._part()
                    if not self._has_root(row):
                        break
        finally:
            # Also if the iterator raises, as after a lost connection to the database: that says
            # nothing about the log, and what came before it counts.
            part.take(read)
            self._join(part)

    def _part(self) -> RangeWalk:
        return RangeWalk(before=self._walk.before())

    def _join(self, part: RangeWalk) -> None:
        walk = self._walk
        if not walk.join(part.result(), _no_line):
            self._broken = self._broken or walk.broken
        walk.notable.clear()  # they are not asked for here, and there may be many

    def _has_root(self, last: StoredRow) -> bool:
        """Return whether the tree up to the row `last`, where a checkpoint is expected, has the
        signed root. If not, keep the finding."""
        tree = self._walk.tree
        if self._broken is not None:
            return False
        if self._expected[tree.size] != {tree.root()}:
            other = f"seq {last.seq}: the tree up to here is not the one that was signed"
            eid = orjson.loads(last.entry)["eid"]
            self._broken = Finding(last.seq, Reason.ROOT_MISMATCH, other, eid)
            return False
        return True

    def _head_fault(self, head: LogHead) -> str | None:
        # The entries alone can't show that the newest of them were removed; the head can.
        walk = self._walk
        size = walk.tree.size
        if head.size != size:
            return f"the head counts {head.size} entries; the log has {size}"
        if size and head.last_leaf != walk.last_leaf:
            return "the head's last leaf is not the last entry's hash"
        if head.frontier != walk.tree.to_bytes():
            return "the head's frontier is not that of the entries"
        if head.last_ts != walk.last_ts:
            return "the head's time is not the last entry's"
        return None


def _no_line(_line: bytes, _tree: Frontier) -> Finding | None:
    raise AssertionError("a row is an entry")
