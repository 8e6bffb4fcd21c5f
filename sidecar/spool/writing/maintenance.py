"""Keeps the spool writable: makes spare segments, begins a new instance after a disk failure, and
declares losses.

Removes acknowledged records from the disk of a quiet spool, so that a value that is erased from the
log does not stay there. Once nothing was written or acknowledged for a while, a new segment begins,
whose header says all that the chain needs; retained segments are deleted; and the segment before
the new one becomes a spare, overwritten with zeros. A segment from before `segment_bytes` was
lowered, which leaves no room for another, is replaced in the same way, and at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
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
"""The seconds without a write or an acknowledgement after which the spool counts as quiet."""

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 0.2
MAX_PAUSE = 5.0
"""The most seconds between two retries; the first retry comes after `FIRST_PAUSE`."""
SPARE_SEGMENTS = 2
"""The number of spare segments to hold. One alone would run out on a disk that is slow to make
more."""
DECLARE_AFTER_SECONDS = 1.0
"""The seconds for which dropped records are counted before one gap record declares them."""


@dataclass(frozen=True, slots=True)
class QuietSpool:
    """Removes acknowledged records from a spool in which nothing happens. Call `drop` every `pause`
    seconds, while the spool accepts records."""

    spares: SegmentPool
    backlog: Backlog
    appender: Appender
    seconds: float

    def pause(self) -> float:
        """Return the seconds until the next call of `drop` may be useful."""
        left = self.seconds - self.backlog.quiet_seconds()
        # Due already, and `drop` could do nothing: records wait for their receipt, or for room.
        return left if left > 0 else self.seconds

    async def drop(self) -> bool:
        """Remove all acknowledged records, if the spool is quiet or needs the room of a segment
        that is larger than new ones. Returns whether a new segment was begun."""
        appender, backlog = self.appender, self.backlog
        instance, last = appender.instance, appender.instance.segments[-1]
        outgrown = appender.starved and last.size > self.spares.size
        busy = backlog.depth > 0 or appender.waiting > 0
        if busy or not (outgrown or backlog.quiet_seconds() >= self.seconds):
            return False
        if last.first == appender.n:
            # It holds no record. An earlier drop may have left segments, if the process died.
            await backlog.trim(everything=True)
            return False
        if not appender.spares:
            return False
        reusable = None
        if last.size == self.spares.size:
            reusable = Reusable(last, last.size - appender.room, self.spares.next_name())
        # If we die before the header is on disk, the next start continues in the old segment; from
        # then on in the new one. A failure ends the instance, which `InstanceRotation` handles.
        with contextlib.suppress(SpoolError):
            await asyncio.shield(appender.roll())
            # Requests went on meanwhile, and the control API may have lost records: `drop` looks
            # again at what is receipted.
            if await backlog.drop(instance, reusable) and reusable is not None:
                appender.spares.append(reusable.spare)
        return True


class Maintenance:
    """The loop that keeps the spool writable, beside the writer. Call `wake` after any change."""

    def __init__(
        self, spares: SegmentPool, backlog: Backlog, resources: SpoolResources, quiet_seconds: float
    ) -> None:
        self.spares = spares
        self._quiet_seconds = quiet_seconds
        self._backlog = backlog
        self._executor = resources.executor
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self.wake = self._woken.set
        """Makes the loop run again at once: there may be something to do, or something may now
        succeed."""

    def occupied_by(self) -> str:
        """Return a description of what fills the room up to `max_bytes`."""
        return self._backlog.occupied_by(len(self._appender.spares) * self.spares.size)

    async def start(self, rotation: InstanceRotation, found: Recovered) -> None:
        """Begin with the results of recovery. A disk that accepts no writes does not prevent the
        start: the spool then refuses every record, and `run` retries."""
        self._rotation = rotation
        self._appender = rotation.appender
        self._quiet = QuietSpool(self.spares, self._backlog, self._appender, self._quiet_seconds)
        if found.resumed is not None:
            at = found.resumed.segment.path, found.resumed.offset
            await self._in_thread(rotation.writer.resume, *at)
        rotation.resume(found)
        rotation.writer.start()
        await self._do_pending_work()

    async def run(self) -> None:
        """Do the pending work whenever the loop is woken or a timer ends, until cancelled. Raises
        if the writer died for any reason other than the disk."""
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

    def dropped(self, reason: str) -> None:
        losses = self._rotation.losses
        # The first one sets the timer for all that follow.
        if not losses:
            self._loop.call_later(DECLARE_AFTER_SECONDS, self.wake)
        losses.dropped(reason)

    async def close(self, seconds: float) -> bool:
        """Refuse records from now on, and wait up to `seconds` for those already accepted. Returns
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
        await self.spares.close(seconds)
        return await self._in_thread(rotation.writer.stop, seconds)

    async def _do_pending_work(self) -> bool:
        rotation = self._rotation
        # The spares come first: a new instance needs one, and takes it.
        await self._refill_pool()
        if rotation.refusal is not None and self._appender.spares:
            # InstanceRotation reports a failure itself; the next round retries. Shielded: a
            # cancelled future would count the losses as undeclared.
            with contextlib.suppress(SpoolError):
                if not rotation.closed:
                    await asyncio.shield(rotation.begin())
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
            spare = await self.spares.make(self.occupied_by, denials_only=appender.denials_only)
            # Retained segments are only a precaution, so they make room for new ones.
            if spare is None and await self._backlog.trim(everything=True):
                continue
            appender.starved = spare is None
            if spare is None:
                break
            appender.spares.append(spare)
        # A segment from before `segment_bytes` was lowered goes once everything is shipped and
        # another has begun. If it leaves no room for that one, the limit has to wait.
        outgrown = not appender.spares and self._outgrown() and not self._rotation.closed
        if outgrown and (spare := await self.spares.make_beyond()) is not None:
            appender.spares.append(spare)

    def _outgrown(self) -> bool:
        """Return whether everything is shipped, and some segment is larger than new ones are."""
        idle = self._backlog.depth == 0 and self._appender.waiting == 0
        return idle and self._backlog.largest > self.spares.size

    def _in_thread(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._executor, work, *arguments)
