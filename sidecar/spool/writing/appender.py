"""Gives each record its number in the current instance of the spool, the hash of the record before
it, and a frame; collects records into batches for the writer, and reports whether they were
written. Records collect while the writer syncs the previous batch: under load one sync serves
many."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from policies.ground.canonical import b64, rfc3339
from policies.ground.clock import Clock
from policies.trail.record import Record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from sidecar.spool.errors import RecordTooLarge, SpoolFull, SpoolUnwritable
from sidecar.spool.instance import Instance, Segment
from sidecar.spool.storage.frames import FRAME, MAX_PAYLOAD, Header, frame_bytes, header_bytes
from sidecar.spool.storage.layout import segment_file
from sidecar.spool.writing.writer import Start, WriteJob

MAX_TURNS = 64
"""The most turns of the event loop for which a batch may keep growing, as long as each turn adds
records. A sync costs more than a record: under load one sync serves many; a lone record waits one
turn."""

LAZY_SECONDS = 0.02
"""The seconds that a non-urgent record may wait for an urgent one."""

RESERVE_FRACTION = 8
"""The share of a segment that is kept for denials: one byte in this many."""

_HEADER_BYTES = 4096
"""The bytes reckoned for a segment's header. A header is always smaller."""


class Batcher:
    """Collects write jobs into batches, and hands them to the writer. Records go into the job
    `current`.

    Set two callables before use. `submit` hands a job to the writer's thread. `write_at_once` tries
    to write a job in the calling thread; if it has, it has called `written` and returns True.
    """

    submit: Callable[[WriteJob], None]
    write_at_once: Callable[[WriteJob], bool]
    current: WriteJob

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._batch: list[WriteJob] = []
        self._in_flight = 0
        self._grown = 0
        self._scheduled = False
        self._urgent = False
        self._lazy_timer: asyncio.TimerHandle | None = None

    def open(self, job: WriteJob) -> None:
        self.current = job
        self._batch.append(job)

    def grow(self, *, urgent: bool) -> None:
        """Note that a record was added to the current job. Unless it is `urgent`, it may wait for
        more."""
        self._grown += 1
        self._urgent = self._urgent or urgent
        # Otherwise the batch goes when its turn of the loop comes or the previous batch is synced.
        if not self._scheduled and not self._in_flight:
            self.schedule()

    def written(self) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self.schedule()

    def discard(self) -> list[WriteJob]:
        dropped, self._batch = self._batch, []
        return dropped

    def schedule(self) -> None:
        """Schedule the batch for the writer: soon if any record in it is urgent, otherwise a moment
        later."""
        if self._urgent:
            # Not at once: other work that is ready on the loop may join this batch.
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._coalesce, self._grown, MAX_TURNS)
        elif self._lazy_timer is None and any(job.frames for job in self._batch):
            # A sync costs more than a record: a record that is not urgent is no reason for one.
            self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._on_lazy_timer)

    def _on_lazy_timer(self) -> None:
        self._lazy_timer = None
        self._urgent = True
        if not self._in_flight:
            self.schedule()

    def _coalesce(self, before: int, turns: int) -> None:
        """Submit the batch once a turn of the event loop adds no further record."""
        # Bounded: under constant load every turn adds a record, and all would wait forever.
        if turns and self._grown > before:
            self._loop.call_soon(self._coalesce, self._grown, turns - 1)
        else:
            self._submit_batch()

    def _submit_batch(self) -> None:
        self._scheduled = False
        # Only one batch at a time, or nothing would gather. `written` schedules this one again.
        if self._in_flight:
            return
        batch, self._batch, self._urgent = self._batch, [], False
        if batch:
            self.open(WriteJob(self.current.instance, None, self.current.end))
        jobs = [job for job in batch if job.frames]
        self._in_flight = len(jobs)
        # With several waiting, other requests go on while the writer's thread waits for the disk. A
        # new segment takes more than one sync.
        lone = len(jobs) == 1 and len(jobs[0].waiters) == 1 and jobs[0].start is None
        if not (lone and self.write_at_once(jobs[0])):
            for job in jobs:
                self.submit(job)


class Appender:
    """Numbers and chains new records of the current instance. `batches` hands them to the writer,
    which calls `on_written` for each job. The callbacks report that records became durable, that a
    write failed, and that a spare segment was taken."""

    def __init__(
        self,
        clock: Clock,
        *,
        segment_bytes: int,
        on_durable: Callable[[], None],
        on_failed: Callable[[Instance, OSError], None],
        on_roll: Callable[[], None],
    ) -> None:
        self.spares: deque[Path] = deque()
        """Spare segments, which are files of zeros that are ready for use."""
        self.starved = False
        """True if no spare segment can be made. All remaining room is then for denials."""
        self.n = 0
        """The number of the next record."""
        self.room = 0
        """The bytes left in the current segment."""
        self.waiting = 0
        """The bytes that are collected or being synced, so not on disk yet."""
        self.batches = Batcher()
        self._loop = asyncio.get_running_loop()
        self._now = clock.now
        self._segment_bytes = segment_bytes
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._on_roll = on_roll
        self._idle: asyncio.Future[None] | None = None

    def resume(self, instance: Instance, n: int, prev: str, room: int) -> None:
        """Continue after record `n` - 1, whose base64 hash is `prev`, in a segment with `room`
        bytes left."""
        self.instance, self.n, self._prev, self.room = instance, n, prev, room
        self.batches.open(WriteJob(instance, None, n))

    def begin(self, instance: Instance, gaps: Sequence[Record]) -> asyncio.Future[None]:
        """Begin a new instance, whose first records are `gaps`. Records collected for the previous
        instance go to disk before it. The future is done once the header and the gap records are on
        disk."""
        self.instance, self.n, self._prev = instance, 0, ""
        # At once, even without a gap: no record is taken until the header is on disk.
        self.batches.grow(urgent=True)
        self._open_segment()
        for gap in gaps:
            self.add((gap,), denial=True)
        return self.durable()

    def roll(self) -> asyncio.Future[None]:
        """Continue in a spare segment. The future is done once the segment's header is on disk."""
        self.batches.grow(urgent=True)
        self._open_segment()
        return self.durable()

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done once everything added so far is on disk. It fails with
        `SpoolUnwritable` if that can't happen any more."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.batches.current.waiters.append(future)
        return future

    def add(self, records: Sequence[Record], *, denial: bool, urgent: bool = True) -> list[bytes]:
        """Number and chain records that are stored together or not at all, and add them to the
        batch. Returns their core hashes. Unless `urgent`, they may wait for later records."""
        n, prev, size = self.n, self._prev, 0
        source, instance = self.instance.source, self.instance.id
        t = rfc3339(self._now())
        frames: list[bytes] = []
        digests = []
        last = n + len(records) - 1
        for record in records:
            core = record.core(src_member(source, instance, n, prev, t))
            payload = spool_payload(core, record.openings)
            if (length := len(payload)) > MAX_PAYLOAD:
                raise RecordTooLarge(f"the record has {length} bytes; the limit is {MAX_PAYLOAD}")
            digest = core_hash(core)
            digests.append(digest)
            frames += frame_bytes(n, payload, more=n < last)
            size += FRAME + length
            n, prev = n + 1, b64(digest)
        # INVARIANT: nothing changes until all of them are known to fit. A number given to a record
        # that is not stored would be a hole.
        if size > self.room - (0 if denial or self.spares else self.reserve):
            self._make_room(size, denial=denial)
        # All of them are frames of one job in one segment: a single write and sync stores them or
        # fails for all. If a crash tears that write, recovery cuts off the whole group.
        job = self.batches.current
        job.frames += frames
        job.size += size
        job.end = self.n = n
        self._prev = prev
        self.room -= size
        self.waiting += size
        self.batches.grow(urgent=urgent)
        return digests

    def discard(self) -> None:
        """Drop the collected records, since their instance accepts no more, and fail the futures
        that wait for them."""
        for job in self.batches.discard():
            self.waiting -= job.size
            _fail(job)

    def on_written(self, job: WriteJob, error: OSError | None) -> None:
        """Handle the writer's report that it has finished a job: `error` is None if the job is on
        disk."""
        self.waiting -= job.size
        if error is None:
            if job.start is not None:
                job.instance.begun = job.start.segment.first
            # An instance that has ended ships nothing beyond its ending.
            if job.instance.ending is None:
                job.instance.end = job.end
            # A cancelled waiter's client hung up. Its record stays.
            for waiter in job.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._on_durable()
        else:
            _fail(job)
            self._on_failed(job.instance, error)
        self.batches.written()
        if not self.waiting and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def idle(self) -> None:
        """Return once no record is collected and none is being synced."""
        while self.waiting:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    @property
    def reserve(self) -> int:
        """The bytes of `room` that are kept for denials while there is no spare segment."""
        # Usually a fraction of a segment: a disk that is only slow to make a spare must not deny
        # requests, but allowed requests must not take the last room before a new segment is
        # certain. Once it is certain that there is none, all that is left is for denials.
        return self._segment_bytes if self.starved else self._segment_bytes // RESERVE_FRACTION

    @property
    def denials_only(self) -> bool:
        """True if all remaining room is kept for denials."""
        return not self.spares and self.room <= self.reserve

    def _make_room(self, size: int, *, denial: bool) -> None:
        if size > self._segment_bytes - _HEADER_BYTES:
            raise SpoolFull("the records of one request do not fit in one segment")
        if size > self.room and self.spares:
            self._open_segment()
        if size > self.room:
            raise SpoolFull
        if not denial and not self.spares and size > self.room - self.reserve:
            raise SpoolFull("the spool is full: only denials are recorded")

    def _open_segment(self) -> None:
        instance = self.instance
        segment = Segment(segment_file(instance.path, self.n), self.n, self._segment_bytes)
        header = header_bytes(Header(instance.source, instance.id, self.n, self._prev))
        start = Start(segment, self.spares.popleft())
        self.batches.open(WriteJob(instance, start, self.n, [header], size=len(header)))
        instance.segments.append(segment)
        self.room = segment.size - len(header)
        self.waiting += len(header)
        self._on_roll()
        # The header goes to disk even if the record that needed the room is then refused.
        self.batches.schedule()


def _fail(job: WriteJob) -> None:
    for waiter in job.waiters:
        if not waiter.done():
            waiter.set_exception(SpoolUnwritable("the disk did not take the record"))
            # Mark it as retrieved: if the client hung up, asyncio would report it as unhandled.
            waiter.exception()
