"""Records read back from the segment files, never from memory, and only as far as they are synced:
what the disk does not hold must not be in the log. Blocks. Knows nothing of what was acknowledged.
"""

from typing import NamedTuple

from sidecar.spool.disk import Disk
from sidecar.spool.instance import (
    Damaged,
    Instance,
    RecordPosition,
    Segment,
    payload_hash,
    runs,
    span,
)


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
    """Records from `acked` on, at least one, and the place behind them. `cursor` is a place at the
    first or before it. `UnreadableRecord` where the first can't be read, `OSError` where the disk
    can't
    say."""
    payloads: list[bytes] = []
    size, behind = 0, cursor
    try:
        for at, run in runs(disk, instance, segments, cursor, end, max_records):
            known = max(0, acked - at.n)
            for payload in run[known:]:
                size += len(payload) + 1
                if payloads and (size > max_bytes or len(payloads) == max_records):
                    break
                payloads.append(payload)
            taken = run[: acked + len(payloads) - at.n]
            behind = RecordPosition(at.first, at.offset + span(taken), at.n + len(taken))
            if len(taken) < len(run) or len(payloads) == max_records:
                break
    except Damaged as damaged:
        # What stands before the bad frame ships first; then nothing does, and it is dealt with.
        if not payloads:
            raise UnreadableRecord(instance, max(damaged.n, acked), str(damaged)) from damaged
    last = acked + len(payloads) - 1
    digest = payload_hash(payloads[-1])
    return RecordBatch(instance.source, instance.id, payloads, acked, last, digest), behind


def read_hash(
    disk: Disk, instance: Instance, segments: list[Segment], cursor: RecordPosition, n: int
) -> bytes | None:
    """The core hash of record `n`, which stands at `cursor` or behind it. Raises as
    `read_batch`."""
    try:
        for at, run in runs(disk, instance, segments, cursor, n + 1):
            if at.n <= n < at.n + len(run):
                return payload_hash(run[n - at.n])
    except Damaged as damaged:
        raise UnreadableRecord(instance, max(damaged.n, instance.acked), str(damaged)) from damaged
    return None
