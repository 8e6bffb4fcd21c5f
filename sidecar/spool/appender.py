"""The writing end of the current instance: numbers, chains and frames records, and gathers them.

Knows how much room is left and what of it is reserved. Knows no modes, and nothing of shipping.

Records gather while the writer syncs the ones before: under load one sync serves many, alone one
serves one. The memory of a record ends when its sync does.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from policies.ground.canonical import b64, rfc3339
from policies.ground.clock import Clock
from policies.trail.record import Record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from sidecar.spool.errors import RecordTooLarge, SpoolFull, SpoolUnwritable
from sidecar.spool.frames import FRAME, MAX_PAYLOAD, Header, frame_bytes, header_bytes
from sidecar.spool.instance import Instance, Segment
from sidecar.spool.layout import segment_file
from sidecar.spool.writer import Start, WriteJob

RESERVED_PART = 8
"""At least this part of a segment is kept for denials."""

MOST_TURNS = 64
"""Of the loop, for which a batch goes on gathering while each brings further records. A sync costs
more than a record: under a crowd one serves many, alone a record waits for one turn."""

LATER_SECONDS = 0.02
"""How long a record that nobody waits for may wait for one that somebody does."""

_HEADER_BYTES = 4096
"""More than a segment's header takes."""


class Appender:
    """`submit`, to be set before use, hands a job to the writer, which calls `settled`. The others
    are called when records became durable, when a write failed, and when a spare was taken."""

    submit: Callable[[WriteJob], None]

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
        """Segments of zeros, held ready."""
        self.starved = False
        """No spare can be made: what is left is for denials."""
        self.n = 0
        """The next record's number."""
        self.room = 0
        """Bytes left in the segment that is being filled."""
        self.waiting = 0
        """Bytes that are gathered or being synced."""
        self._loop = asyncio.get_running_loop()
        self._now = clock.now
        self._segment_bytes = segment_bytes
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._on_roll = on_roll
        self._gathered: list[WriteJob] = []
        self._in_flight = 0
        self._armed = False
        self._hurry = False
        self._later: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    def resume(self, instance: Instance, n: int, prev: str, room: int) -> None:
        """Go on behind record `n` - 1, whose base64 hash is `prev`."""
        self.instance, self.n, self._prev, self.room = instance, n, prev, room
        self._job = WriteJob(instance, None, n)
        self._gathered = [self._job]

    def begin(self, instance: Instance, gaps: Sequence[Record]) -> asyncio.Future[None]:
        """A new instance, whose first records are `gaps`. What was gathered for the former one goes
        to the disk before it. The future is done once header and gaps are on disk."""
        self.instance, self.n, self._prev = instance, 0, ""
        self._hurry = True
        self._open_segment()
        for gap in gaps:
            self.add((gap,), denial=True)
        return self.durable()

    def durable(self) -> asyncio.Future[None]:
        """Done once what was just added is on disk; `SpoolUnwritable` where it will not be."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._job.waiters.append(future)
        return future

    def add(self, records: Sequence[Record], *, denial: bool, hurry: bool = True) -> list[bytes]:
        """Number, chain and gather records that are stored together or not at all; their core
        hashes. Without `hurry` they may wait for the next ones.

        All of a group are frames of one job and one segment: one write and one sync takes them or
        fails for all, and of a write that a crash tears in between, recovery cuts the group."""
        n, prev, size = self.n, self._prev, 0
        source, instance = self.instance.source, self.instance.id
        t = rfc3339(self._now())
        frames: list[bytes] = []
        digests = []
        last = n + len(records) - 1
        for record in records:
            core = record.core(src_member(source, instance, n, prev, t))
            payload = spool_payload(core, record.openings)
            if len(payload) > MAX_PAYLOAD:
                raise RecordTooLarge(
                    f"the record has {len(payload)} bytes, and the spool takes {MAX_PAYLOAD}"
                )
            digest = core_hash(core)
            digests.append(digest)
            frames += frame_bytes(n, payload, more=n < last)
            size += FRAME + len(payload)
            n, prev = n + 1, b64(digest)
        # INVARIANT: until all of them are known to fit, nothing has changed. A number given to a
        # record that is not kept would be a hole.
        if size > self.room - (0 if denial or self.spares else self.reserve):
            self._make_room(size, denial=denial)
        job = self._job
        job.frames += frames
        job.size += size
        job.end = self.n = n
        self._prev = prev
        self.room -= size
        self.waiting += size
        self._hurry = self._hurry or hurry
        if not self._armed and not self._in_flight:
            self._schedule()
        return digests

    def discard(self) -> None:
        """Fail whoever waits for what was gathered: its instance takes no more."""
        for job in self._gathered:
            self.waiting -= job.size
            _fail(job)
        self._gathered = []

    def settled(self, job: WriteJob, error: OSError | None) -> None:
        """The writer is done with a job. A waiter that was cancelled is passed over: its client
        hung up, its record stays."""
        self._in_flight -= 1
        self.waiting -= job.size
        if error is None:
            if job.instance.ending is None:
                job.instance.end = job.end
            for waiter in job.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._on_durable()
        else:
            _fail(job)
            self._on_failed(job.instance, error)
        if not self._in_flight:
            self._schedule()
        # Told here, not by a flush: after the last one there is nothing to flush for.
        if not self.waiting and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def idle(self) -> None:
        """Returns once nothing is gathered and nothing is being synced."""
        while self.waiting:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    @property
    def reserve(self) -> int:
        """The bytes of `room` that are for denials alone where there is no spare. While one is
        being made that is a part of the segment: ALLOWs must not be refused for a disk that is only
        slow, nor take the last room before it is known that there will be more."""
        return self._segment_bytes if self.starved else self._segment_bytes // RESERVED_PART

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
        self._job = WriteJob(instance, start, self.n, [header], size=len(header))
        self._gathered.append(self._job)
        instance.segments.append(segment)
        self.room = segment.size - len(header)
        self.waiting += len(header)
        self._on_roll()
        # The header goes to disk even where the record that needed the room is refused after all.
        self._schedule()

    def _schedule(self) -> None:
        if self._hurry:
            # Not at once: whatever else is ready on the loop joins this batch.
            if not self._armed:
                self._armed = True
                self._loop.call_soon(self._coalesce, self.n, MOST_TURNS)
        elif self.waiting and self._later is None:
            # A sync costs more than a record: what nobody waits for is no reason for one.
            self._later = self._loop.call_later(LATER_SECONDS, self._late)

    def _late(self) -> None:
        self._later = None
        self._hurry = True
        if not self._in_flight:
            self._schedule()

    def _coalesce(self, before: int, turns: int) -> None:
        """Flush once a turn of the loop brought no further record."""
        if turns and self.n > before:
            self._loop.call_soon(self._coalesce, self.n, turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        self._armed = False
        if self._in_flight:
            return
        jobs, self._gathered, self._hurry = self._gathered, [], False
        for job in jobs:
            if job.frames:
                self._in_flight += 1
                self.submit(job)
        if jobs:
            self._job = WriteJob(self.instance, None, self.n)
            self._gathered.append(self._job)


def _fail(job: WriteJob) -> None:
    for waiter in job.waiters:
        if not waiter.done():
            waiter.set_exception(SpoolUnwritable("the disk did not take the record"))
            # A client that no longer waits leaves nobody to hear it: that is no error of the loop.
            waiter.exception()
