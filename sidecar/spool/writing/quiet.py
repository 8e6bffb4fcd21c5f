"""Takes what was receipted off the disk of a spool that has nothing to do, so that a value that is
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

Knows when, and in which order. Knows nothing of receipts.
"""

import asyncio
import contextlib

from sidecar.spool.errors import SpoolError
from sidecar.spool.reading.backlog import Backlog, Reusable
from sidecar.spool.storage.segment_pool import SegmentPool
from sidecar.spool.writing.appender import Appender

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
