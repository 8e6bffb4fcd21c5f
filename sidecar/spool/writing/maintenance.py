"""Keeps the spool writable: makes spare segments, begins a new instance after a disk failure, and
declares losses.

Takes what was receipted off the disk of a spool that has nothing to do, so that a value that is
erased from the log does not stay in the spool.

Under load, segments leave by themselves: each is deleted some time after the next one began. The
last segment of a quiet sidecar would stay for days. So once nothing was written or receipted for a
while:

1. A new segment begins. Its header says the next number and the hash of the record before it: all
   that the chain needs.
2. Retained segments are deleted.
3. The segment before the new one becomes a spare: its records are overwritten with zeros. A new
   spare would be written in full, for a sidecar that decides every few minutes far more than its
   records.

A spool whose `segment_bytes` and `max_bytes` were lowered may hold a segment that leaves no room
for another. Once everything is receipted, it is replaced in the same way, and at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

from sidecar.platform.backoff import Backoff
from sidecar.spool.errors import SpoolError
from sidecar.spool.instance import SpoolResources
from sidecar.spool.reading.backlog import Backlog, Reusable
from sidecar.spool.recovery import Recovered
from sidecar.spool.storage.layout import SegmentPool
from sidecar.spool.writing.appender import Appender
from sidecar.spool.writing.instance_rotation import InstanceRotation

QUIET_SECONDS = 60.0
"""The seconds during which nothing may have been written or receipted for the spool to be quiet."""


class QuietSpool:
    """Call `drop` every `pause` seconds, while the spool takes records."""

    def __init__(
        self, spares: SegmentPool, backlog: Backlog, appender: Appender, seconds: float
    ) -> None:
        self._spares = spares
        self._backlog = backlog
        self._appender = appender
        self._seconds = seconds

    def pause(self) -> float:
        """Return the seconds until `drop` may have something to do."""
        left = self._seconds - self._backlog.quiet_seconds()
        # Due already, and `drop` could do nothing: records wait for their receipt, or for room.
        return left if left > 0 else self._seconds

    async def drop(self) -> bool:
        """Drop all receipted records, if the spool is quiet or needs the room of a segment that is
        larger than new ones. Returns whether a new segment was begun."""
        appender, backlog = self._appender, self._backlog
        instance, last = appender.instance, appender.instance.segments[-1]
        outgrown = appender.starved and last.size > self._spares.size
        busy = backlog.depth > 0 or appender.waiting > 0
        if busy or not (outgrown or backlog.quiet_seconds() >= self._seconds):
            return False
        if last.first == appender.n:
            # It holds no record. An earlier drop may have left segments, if the process died.
            await backlog.trim(everything=True)
            return False
        if not appender.spares:
            return False
        reusable = None
        if last.size == self._spares.size:
            reusable = Reusable(last, last.size - appender.room, self._spares.next_name())
        # If we die before the header is on disk, the next start continues in the old segment; from
        # then on in the new one. A failure ends the instance, which `InstanceRotation` handles.
        with contextlib.suppress(SpoolError):
            await asyncio.shield(appender.roll())
            # Requests went on meanwhile, and the control API may have lost records: `drop` looks
            # again at what is receipted.
            if await backlog.drop(instance, reusable) and reusable is not None:
                appender.spares.append(reusable.spare)
        return True


log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 0.2
MAX_PAUSE = 5.0
"""Seconds before the first retry, and the most between two."""
SPARE_SEGMENTS = 2
"""The number of spares to hold. With only one, requests would be denied under load if the disk were
slow to make the next."""
DECLARE_AFTER_SECONDS = 1.0
"""The seconds for which dropped records are counted before a gap record declares them."""


class Maintenance:
    """The loop beside the writer. Call `wake` after any change."""

    def __init__(
        self,
        spares: SegmentPool,
        backlog: Backlog,
        resources: SpoolResources,
        quiet_seconds: float,
    ) -> None:
        self._spares = spares
        self._quiet_seconds = quiet_seconds
        self._backlog = backlog
        self._executor = resources.executor
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    @property
    def disk_fault(self) -> str | None:
        """The reason why the disk has no room for another segment; None if it has room."""
        return self._spares.disk_fault

    def occupied_by(self) -> str:
        """Return what fills the room up to `max_bytes`."""
        return self._backlog.occupied_by(len(self._appender.spares) * self._spares.size)

    async def start(self, rotation: InstanceRotation, found: Recovered) -> None:
        """Begin with the results of recovery. A disk that takes nothing does not prevent the start:
        the spool then refuses every record, and `run` retries."""
        self._rotation = rotation
        self._appender = rotation.appender
        self._quiet = QuietSpool(self._spares, self._backlog, self._appender, self._quiet_seconds)
        if found.resumed is not None:
            await self._in_thread(
                rotation.writer.resume, found.resumed.segment.path, found.resumed.offset
            )
        rotation.resume(found)
        rotation.writer.start()
        await self._do_pending_work()

    async def run(self) -> None:
        """Never returns. Raises if the writer died for any reason other than the disk."""
        backoff = Backoff(FIRST_PAUSE, MAX_PAUSE)
        while True:
            self._woken.clear()
            if self._rotation.fault is not None:
                raise self._rotation.fault
            well = await self._do_pending_work()
            if well:
                backoff.reset()
            else:
                # The failure itself has woken us: do not retry without a pause.
                self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._quiet.pause() if well else backoff.next_pause()):
                    await self._woken.wait()

    def wake(self) -> None:
        """Run the loop again: there may be something to do, or something may now succeed."""
        self._woken.set()

    def dropped(self, reason: str) -> None:
        """Count a record that was answered but did not fit."""
        losses = self._rotation.losses
        # The first one sets the timer for all that follow.
        if not losses:
            self._loop.call_later(DECLARE_AFTER_SECONDS, self.wake)
        losses.dropped(reason)

    async def close(self, seconds: float) -> bool:
        """Refuse records from now on, and wait up to `seconds` for those already taken. Returns
        whether the writer has stopped: on a disk that hangs it has not."""
        rotation = self._rotation
        # The counts of mode `best_effort` are only in memory: this is their last chance.
        if rotation.refusal is None and rotation.losses:
            rotation.declare()
        rotation.closed, rotation.refusal = True, "the sidecar is stopping"
        try:
            async with asyncio.timeout(seconds):
                await self._appender.idle()
        except TimeoutError:
            log.error("records are still not on disk after %g s: stopping without them", seconds)
            self._appender.discard()
        await asyncio.sleep(0)  # lets the last job's callbacks run: it may be a declaration
        await self._backlog.retire()
        await self._spares.close(seconds)
        return await self._in_thread(rotation.writer.stop, seconds)

    async def _do_pending_work(self) -> bool:
        """Do the pending work. Returns whether none is left."""
        rotation = self._rotation
        # The spares come first: a new instance needs one, and takes it.
        await self._refill_pool()
        if rotation.refusal is not None and self._appender.spares:
            await self._begin_instance()
            await self._refill_pool()
        if rotation.refusal is None and rotation.losses:
            rotation.declare()
        await self._backlog.retire()
        if rotation.refusal is None and await self._quiet.drop():
            await self._refill_pool()
        waits = rotation.refusal is not None or rotation.losses
        return len(self._appender.spares) >= SPARE_SEGMENTS and not waits

    async def _refill_pool(self) -> None:
        appender = self._appender
        while len(appender.spares) < SPARE_SEGMENTS and not self._rotation.closed:
            spare = await self._spares.make(self.occupied_by, denials_only=appender.denials_only)
            # Retained segments are only a precaution, so they make room for new ones.
            if spare is None and await self._backlog.trim(everything=True):
                continue
            appender.starved = spare is None
            if spare is None:
                break
            appender.spares.append(spare)
        # A segment from before `segment_bytes` was lowered goes once everything is shipped and
        # another has begun. If it leaves no room for that one, the limit has to wait.
        if not appender.spares and self._outgrown() and not self._rotation.closed:
            spare = await self._spares.make_beyond()
            if spare is not None:
                appender.spares.append(spare)

    def _outgrown(self) -> bool:
        """Whether everything is shipped, and a segment is larger than new ones."""
        idle = self._backlog.depth == 0 and self._appender.waiting == 0
        return idle and self._backlog.largest > self._spares.size

    async def _begin_instance(self) -> None:
        if not self._rotation.closed:
            # InstanceRotation reports a failure itself; the next round retries. Shielded: a
            # cancelled future would count the losses as undeclared.
            with contextlib.suppress(SpoolError):
                await asyncio.shield(self._rotation.begin())

    def _in_thread(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._executor, work, *arguments)
