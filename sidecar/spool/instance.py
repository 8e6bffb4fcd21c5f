"""One spool instance in memory: its segments, and how far it is written and shipped.

An instance is one unbroken chain of records, numbered from 0. The control API takes records only in
order, so nothing after a missing record could ever be shipped. Hence the rule of this package:

# INVARIANT: an instance has no holes. Whatever breaks the chain (a failed sync, a bad frame, a
# record that the control API refuses) ends the instance; another begins, in which a `gap` record
# says what was lost.

Also holds the objects that the parts of a spool share.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from policies.ground.clock import Clock
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import Ending


@dataclass(frozen=True, slots=True)
class Segment:
    path: Path
    first: int
    size: int


class RecordPosition(NamedTuple):
    """The place of record `n` on disk: at `offset` in the segment whose first record is `first`. If
    `offset` is the segment's end, the record is the first of the next segment. If it is 0, the
    header lies there, which a reader skips."""

    first: int
    offset: int
    n: int


_START = RecordPosition(0, 0, 0)


@dataclass(slots=True)
class Instance:
    """One spool instance: an unbroken chain of records in a directory of its own. `source` is the
    sidecar id under which its records were made.

    `acked`: every record below this number is in the control API's log. `end`: every record below
    this number is on disk and may ship. `begun`: the number of the first record, written or still
    to come, of the newest segment whose header is on disk. `retained`: how many of the first
    segments have nothing left to ship; they stay for a control API that comes back with fewer
    records than it signed for. `gaps`: the number of gap records at the start of the instance, if
    this process began it.
    """

    ordinal: int
    id: str
    source: str
    path: Path
    segments: deque[Segment] = field(default_factory=deque)
    acked: int = 0
    end: int = 0
    ending: Ending | None = None
    cursor: RecordPosition = _START
    gaps: int = 0
    retained: int = 0
    begun: int = 0

    @property
    def unshipped(self) -> int:
        """The number of records left to ship; 0 also if the remaining records were set aside."""
        return max(0, self.end - self.acked)

    def start(self) -> RecordPosition:
        """Return a position at or before the first unacknowledged record, where reading for
        shipping begins."""
        first = self.segments[self.retained].first
        # The cursor may lie in a segment that has since been deleted or is only retained.
        return self.cursor if self.cursor.first >= first else RecordPosition(first, 0, first)

    def before(self, n: int) -> RecordPosition | None:
        """Return a position at or before record `n`, whether acknowledged or not; None if the
        record is no longer on disk."""
        found = [segment.first for segment in self.segments if segment.first <= n]
        return RecordPosition(found[-1], 0, found[-1]) if found and n <= self.end else None

    def count_retained(self) -> None:
        # A segment counts only once the next one's header is on disk: without it, a restart could
        # not tell the next number.
        shipped = min(self.acked, max(self.begun, self.end - 1))
        self.retained = sum(1 for segment in list(self.segments)[1:] if segment.first <= shipped)


@dataclass(frozen=True, slots=True)
class SpoolResources:
    """The resources that the parts of a spool share. `source` is the sidecar id under which records
    are made. `executor` runs the file operations that belong neither to the writer nor to the
    segment pool. `in_loop`: the event loop itself may write and wait if the disk is fast."""

    root: Path
    source: str
    segment_bytes: int
    disk: Disk
    executor: Executor
    clock: Clock
    random_bytes: Callable[[int], bytes]
    in_loop: bool
