"""Reads records back from the segment files, never from memory, and only as far as they are synced:
a record that is not on disk must not get into the log. Blocks. Knows nothing of acknowledgement.
"""

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from policies.ground.canonical import encode
from policies.trail.spool_chain import core_hash
from sidecar.spool.instance import Instance, RecordPosition, Segment
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import FRAME, payloads, read_header

WINDOW = 1024 * 1024
"""Bytes read at once. Any frame fits."""

RUN = 512
"""Records handled in one step."""

_MAX_HEADER = 4096


class RecordBatch(NamedTuple):
    """Records of one instance, in order and without a hole; `hash` is the last one's core hash."""

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


class _Damaged(Exception):
    """record `n` can't be read back, though it was durable"""

    def __init__(self, n: int, why: str) -> None:
        super().__init__(why)
        self.n = n


def read_batch(
    disk: Disk,
    instance: Instance,
    segments: list[Segment],
    cursor: RecordPosition,
    acked: int,
    end: int,
    max_bytes: int,
    max_records: int,
) -> tuple[RecordBatch, RecordPosition]:
    """Read records from `acked` on, at least one; also return the position after them.

    `cursor` is a position at or before the first. Raises `UnreadableRecord` if the first record
    can't be read back, and `OSError` if the disk fails to read.
    """
    found: list[bytes] = []
    size, after = 0, cursor
    try:
        for at, run in _runs(disk, instance, segments, cursor, end, max_records):
            # A run may begin before `acked`: the cursor points at or before it.
            skipped = max(0, acked - at.n)
            for payload in run[skipped:]:
                size += len(payload) + 1
                if found and (size > max_bytes or len(found) == max_records):
                    break
                found.append(payload)
            taken = run[: acked + len(found) - at.n]
            after = RecordPosition(at.first, at.offset + _span(taken), at.n + len(taken))
            if len(taken) < len(run) or len(found) == max_records:
                break
    except _Damaged as damaged:
        # Ship what lies before the bad frame first. The next read finds nothing else, and raises.
        if not found:
            raise UnreadableRecord(instance, max(damaged.n, acked), str(damaged)) from damaged
    last = acked + len(found) - 1
    digest = payload_hash(found[-1])
    return RecordBatch(instance.source, instance.id, found, acked, last, digest), after


def read_hash(
    disk: Disk, instance: Instance, segments: list[Segment], cursor: RecordPosition, n: int
) -> bytes | None:
    """The core hash of record `n`, which lies at `cursor` or after it. Raises as `read_batch`."""
    try:
        for at, run in _runs(disk, instance, segments, cursor, n + 1):
            if at.n <= n < at.n + len(run):
                return payload_hash(run[n - at.n])
    except _Damaged as damaged:
        raise UnreadableRecord(instance, max(damaged.n, instance.acked), str(damaged)) from damaged
    return None


def payload_hash(payload: bytes) -> bytes:
    """The core hash of a record as it was spooled. Trusts the payload: its frame's checksum was
    right."""
    return core_hash(encode(orjson.loads(payload)["core"]))


def _runs(
    disk: Disk,
    instance: Instance,
    segments: list[Segment],
    cursor: RecordPosition,
    end: int,
    limit: int = RUN,
) -> Iterator[tuple[RecordPosition, list[bytes]]]:
    """The payloads from `cursor` up to record `end`, in runs of at most `limit`, each with the
    position of its first. Raises `_Damaged` at a record that is not there. `segments` is a copy:
    the instance's own list changes in another thread."""
    by_first = {segment.first: segment for segment in segments}
    first, offset, n = cursor
    while n < end:
        if n in by_first and n != first:
            first, offset = n, 0
        segment = by_first.get(first)
        if segment is None:
            raise _Damaged(n, f"no segment begins at record {first}")
        if offset == 0:
            offset = _after_header(disk, instance, segment)
        stop = min(end, min((other for other in by_first if other > first), default=end))
        for run in _in_segment(disk, segment, offset, n, stop, limit):
            yield RecordPosition(first, offset, n), run
            offset, n = offset + _span(run), n + len(run)


def _span(run: list[bytes]) -> int:
    """The bytes that these payloads take in their segment."""
    return FRAME * len(run) + sum(map(len, run))


def _in_segment(
    disk: Disk, segment: Segment, offset: int, n: int, stop: int, limit: int
) -> Iterator[list[bytes]]:
    base, data = offset, b""
    while n < stop:
        run = payloads(data, offset - base, n, min(limit, stop - n))
        if not run:
            # The window's end or a bad frame? Only a window that begins here tells.
            base, data = offset, _read(disk, segment, offset, WINDOW, n)
            run = payloads(data, 0, n, min(limit, stop - n))
        if not run:
            raise _Damaged(n, f"bad frame at offset {offset} of {segment.path.name}")
        yield run
        offset, n = offset + _span(run), n + len(run)


def _after_header(disk: Disk, instance: Instance, segment: Segment) -> int:
    found = read_header(_read(disk, segment, 0, _MAX_HEADER, segment.first))
    if found is None:
        raise _Damaged(segment.first, f"bad header in {segment.path.name}")
    header, after = found
    if header.instance != instance.id or header.first != segment.first:
        raise _Damaged(segment.first, f"{segment.path.name} belongs to another instance or number")
    return after


def _read(disk: Disk, segment: Segment, offset: int, length: int, n: int) -> bytes:
    try:
        return disk.read(segment.path, offset, length)
    except FileNotFoundError as error:
        raise _Damaged(n, f"{segment.path.name} is missing") from error
