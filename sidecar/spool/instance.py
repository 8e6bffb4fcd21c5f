"""One spool instance as it is known in memory: its segments, and how far it is written and shipped.

An instance is one unbroken chain of records, numbered from 0. The control API takes it only in
order, so nothing behind a missing record could ever be shipped. Hence the rule of this package:

# INVARIANT: an instance has no holes. Whatever breaks the chain (a failed sync, a bad frame, a
# record that the control API refuses) ends the instance, and another begins, in which a `gap`
# record says what was lost.

Reads what it holds, in order. Knows nothing of writing it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson

from policies.ground.canonical import encode
from policies.trail.spool_chain import core_hash
from sidecar.spool.disk import Disk
from sidecar.spool.frames import FRAME, payloads, read_header
from sidecar.spool.layout import Ending

WINDOW = 1024 * 1024
"""Bytes read at once; any frame fits."""

RUN = 512
"""Records looked at in one go."""

_LARGEST_HEADER = 4096


class Damaged(Exception):
    """record `n` can't be read back, though it was durable"""

    def __init__(self, n: int, why: str) -> None:
        super().__init__(why)
        self.n = n


@dataclass(frozen=True, slots=True)
class Segment:
    """One file: its first record, and its size, which never changes."""

    path: Path
    first: int
    size: int


class RecordPosition(NamedTuple):
    """Record `n` stands at `offset` of the segment whose first record is `first`, or, where that is
    the segment's end, at the next one's beginning. Offset 0 is the header's, which is skipped."""

    first: int
    offset: int
    n: int


_NOWHERE = RecordPosition(0, 0, 0)


@dataclass(slots=True)
class Instance:
    """`acked`: every record below is in the control API's log. `end`: every record below is on
    disk, and shipped. `kept`: so many of the first segments hold nothing that is to be shipped;
    they are there for a control API that comes back with less than it signed for. `source` is the
    id under which its records were made. `gaps`: how many gap records it begins with, where it
    began in this life."""

    ordinal: int
    id: str
    source: str
    path: Path
    segments: deque[Segment] = field(default_factory=deque)
    acked: int = 0
    end: int = 0
    ending: Ending | None = None
    cursor: RecordPosition = _NOWHERE
    gaps: int = 0
    kept: int = 0

    @property
    def unshipped(self) -> int:
        """Records; 0 too where what is left was set aside."""
        return max(0, self.end - self.acked)

    def start(self) -> RecordPosition:
        """Where the first unacknowledged record is, or a place before it."""
        first = self.segments[self.kept].first
        return self.cursor if self.cursor.first >= first else RecordPosition(first, 0, first)

    def before(self, n: int) -> RecordPosition | None:
        """A place before record `n`, acknowledged or not; None where it is not on disk any more."""
        found = [segment.first for segment in self.segments if segment.first <= n]
        return RecordPosition(found[-1], 0, found[-1]) if found and n <= self.end else None

    def count_kept(self) -> None:
        """Not before a record of the next segment is on disk: it is what tells the next number."""
        shipped = min(self.acked, self.end - 1)
        behind = list(self.segments)[1:]
        self.kept = sum(1 for segment in behind if segment.first <= shipped)


def payload_hash(payload: bytes) -> bytes:
    """The core hash of a record as it was spooled. Our own bytes: their frame's sum was right."""
    return core_hash(encode(orjson.loads(payload)["core"]))


def runs(
    disk: Disk,
    instance: Instance,
    segments: list[Segment],
    cursor: RecordPosition,
    end: int,
    most: int = RUN,
) -> Iterator[tuple[RecordPosition, list[bytes]]]:
    """The payloads from `cursor` up to record `end`, in runs of at most `most`, each with the place
    of its first; `Damaged` where a record is not there. `segments` is a copy: the list changes in
    another thread."""
    by_first = {segment.first: segment for segment in segments}
    first, offset, n = cursor
    while n < end:
        if n in by_first and n != first:
            first, offset = n, 0
        segment = by_first.get(first)
        if segment is None:
            raise Damaged(n, f"no segment begins at record {first}")
        if offset == 0:
            offset = _behind_header(disk, instance, segment)
        stop = min(end, min((other for other in by_first if other > first), default=end))
        for run in _in_segment(disk, segment, offset, n, stop, most):
            yield RecordPosition(first, offset, n), run
            offset, n = offset + span(run), n + len(run)


def span(run: list[bytes]) -> int:
    """The bytes that these payloads take in their segment."""
    return FRAME * len(run) + sum(map(len, run))


def _in_segment(
    disk: Disk, segment: Segment, offset: int, n: int, stop: int, most: int
) -> Iterator[list[bytes]]:
    base, data = offset, b""
    while n < stop:
        run = payloads(data, offset - base, n, min(most, stop - n))
        if not run:
            # At the window's end, or at a bad frame: only a window that begins here tells.
            base, data = offset, _read(disk, segment, offset, WINDOW, n)
            run = payloads(data, 0, n, min(most, stop - n))
        if not run:
            raise Damaged(n, f"a bad frame at offset {offset} of {segment.path.name}")
        yield run
        offset, n = offset + span(run), n + len(run)


def _behind_header(disk: Disk, instance: Instance, segment: Segment) -> int:
    found = read_header(_read(disk, segment, 0, _LARGEST_HEADER, segment.first))
    if found is None:
        raise Damaged(segment.first, f"a bad header in {segment.path.name}")
    header, behind = found
    if header.instance != instance.id or header.first != segment.first:
        raise Damaged(segment.first, f"{segment.path.name} is of another place")
    return behind


def _read(disk: Disk, segment: Segment, offset: int, length: int, n: int) -> bytes:
    try:
        return disk.read(segment.path, offset, length)
    except FileNotFoundError as error:
        raise Damaged(n, f"{segment.path.name} is missing") from error
