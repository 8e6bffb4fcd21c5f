"""Reads records back from the segment files, never from memory, and only as far as they are synced:
a record that is not on disk must not get into the log. All reads block."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from policies.ground.canonical import encode, micros
from policies.trail.spool_chain import core_hash
from sidecar.spool.instance import Instance, RecordPosition, Segment
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import FRAME, payloads, read_header

WINDOW = 1024 * 1024
"""The most bytes read at once. A frame of any size fits."""

_LIKELY = 2048
"""The bytes to read at first for each requested record: most frames are smaller."""

RUN = 512
"""The most records handled in one step."""

_MAX_HEADER = 4096


class RecordBatch(NamedTuple):
    """A batch of records to ship: records of one instance, in order and without a hole. `hash` is
    the core hash of the last record."""

    source: str
    instance: str
    payloads: list[bytes]
    first_n: int
    last_n: int
    hash: bytes


class UnreadableRecord(Exception):
    """from record `n` on `instance` can't be read back"""

    def __init__(self, instance: Instance, n: int, why: str) -> None:
        super().__init__(why)
        self.instance = instance
        self.n = n

    def not_before(self, n: int) -> "UnreadableRecord":
        """Return this error with the number `n` if its own record number is lower."""
        return UnreadableRecord(self.instance, max(self.n, n), str(self))


@dataclass(frozen=True, slots=True)
class InstanceReader:
    """Reads the records of one instance. `start` is a position at or before the first record to
    read.

    A damaged record raises `UnreadableRecord`, and a disk that fails to read raises `OSError`:
    damage is final, but a bad disk may recover.
    """

    disk: Disk
    instance: Instance
    start: RecordPosition
    # A copy: the instance's own list changes on the event loop while this runs in a thread.
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, disk: Disk, instance: Instance, start: RecordPosition) -> "InstanceReader":
        return cls(disk, instance, start, tuple(instance.segments))

    def read_batch(
        self, first: int, end: int, max_bytes: int, max_records: int
    ) -> tuple[RecordBatch, RecordPosition]:
        """Read records from number `first` on, and at least one. Also returns the position after
        the last of them."""
        found: list[bytes] = []
        size, after = 0, self.start
        try:
            for at, run in self._runs(end, max_records):
                # The first run may begin before `first`, since the reader's position may.
                skipped = max(0, first - at.n)
                for payload in run[skipped:]:
                    size += len(payload) + 1  # the comma in the request that ships it
                    # The first record is taken whatever its size, or it would block all others.
                    if found and (size > max_bytes or len(found) == max_records):
                        break
                    found.append(payload)
                # With the skipped records: the position counts from the start of the run.
                taken = run[: first + len(found) - at.n]
                after = RecordPosition(at.first, at.offset + _span(taken), at.n + len(taken))
                if len(taken) < len(run) or len(found) == max_records:
                    break
        except UnreadableRecord as damage:
            # Ship the records before the bad frame first. The next read finds no others, and
            # raises.
            if not found:
                raise damage.not_before(first) from damage
        last = first + len(found) - 1
        digest = payload_hash(found[-1])
        source, instance = self.instance.source, self.instance.id
        return RecordBatch(source, instance, found, first, last, digest), after

    def read_hash(self, n: int) -> bytes | None:
        try:
            for at, run in self._runs(n + 1, RUN):
                if at.n <= n < at.n + len(run):
                    return payload_hash(run[n - at.n])
        except UnreadableRecord as damage:
            # An acknowledged record is not lost, even if it can no longer be read here.
            raise damage.not_before(self.instance.acked) from damage
        return None

    def _runs(self, end: int, limit: int) -> Iterator[tuple[RecordPosition, list[bytes]]]:
        """Yield the payloads of the records below number `end`, in runs of at most `limit`, each
        with the position of its first record."""
        by_first = {segment.first: segment for segment in self.segments}
        first, offset, n = self.start
        while n < end:
            # The position may be at the end of a segment, which is the start of the next.
            if n in by_first and n != first:
                first, offset = n, 0
            segment = by_first.get(first)
            if segment is None:
                raise UnreadableRecord(self.instance, n, f"no segment begins at record {first}")
            if offset == 0:
                offset = self._after_header(segment)
            stop = min(end, min((other for other in by_first if other > first), default=end))
            for run in self._in_segment(segment, offset, n, stop, limit):
                yield RecordPosition(first, offset, n), run
                offset, n = offset + _span(run), n + len(run)

    def _in_segment(
        self, segment: Segment, offset: int, n: int, stop: int, limit: int
    ) -> Iterator[list[bytes]]:
        base, data = offset, b""
        while n < stop:
            run = payloads(data, offset - base, n, min(limit, stop - n))
            if not run:
                # Is this the window's end or a bad frame? Only a window that begins here can tell,
                # and that holds any frame.
                base, asked = offset, min(limit, stop - n)
                for size in (min(WINDOW, asked * _LIKELY), WINDOW):
                    data = self._read(segment, offset, size, n)
                    if run := payloads(data, 0, n, asked):
                        break
            if not run:
                why = f"bad frame at offset {offset} of {segment.path.name}"
                raise UnreadableRecord(self.instance, n, why)
            yield run
            offset, n = offset + _span(run), n + len(run)

    def _after_header(self, segment: Segment) -> int:
        name = segment.path.name
        found = read_header(self._read(segment, 0, _MAX_HEADER, segment.first))
        if found is None:
            raise UnreadableRecord(self.instance, segment.first, f"bad header in {name}")
        header, after = found
        # The file was copied or renamed: its frames may be good, but aren't of this segment.
        if header.instance != self.instance.id or header.first != segment.first:
            why = f"{name} belongs to another instance or number"
            raise UnreadableRecord(self.instance, segment.first, why)
        return after

    def _read(self, segment: Segment, offset: int, length: int, n: int) -> bytes:
        try:
            return self.disk.read(segment.path, offset, length)
        except FileNotFoundError as error:
            # Unlike other errors of the disk this one is final: trying again finds no file either.
            raise UnreadableRecord(self.instance, n, f"{segment.path.name} is missing") from error


class WaitingSince(NamedTuple):
    """The time of one unacknowledged record, in microseconds. `position` is the number of
    unacknowledged records before it."""

    position: int
    time: int


def waiting_since(disk: Disk, instances: Iterable[Instance]) -> list[WaitingSince]:
    """Return the times of some unacknowledged records: of the first in each instance, and of the
    first in each later segment. To read every record would delay the start by the size of the
    spool."""
    found, before = [], 0
    for instance in instances:
        later = [each.first for each in instance.segments if each.first > instance.acked]
        for n in (instance.acked, *later):
            if n < instance.end and (time := _time_of(disk, instance, n)) is not None:
                found.append(WaitingSince(before + n - instance.acked, time))
        before += instance.unshipped
    return found


def _time_of(disk: Disk, instance: Instance, n: int) -> int | None:
    start = instance.before(n)
    if start is None:
        return None
    try:
        batch, _ = InstanceReader.of(disk, instance, start).read_batch(n, n + 1, 1, RUN)
    except (OSError, UnreadableRecord):
        # The shipper will meet the same fault, and tells it. Only the age depends on it here.
        return None
    return micros(orjson.loads(batch.payloads[0])["core"]["src"]["t"])


def payload_hash(payload: bytes) -> bytes:
    """Return the core hash of a record from its payload in the spool. Trusts the payload, since the
    checksum of its frame was right."""
    return core_hash(encode(orjson.loads(payload)["core"]))


def _span(run: list[bytes]) -> int:
    """Return the bytes that the frames with these payloads take in a segment."""
    return FRAME * len(run) + sum(map(len, run))
