"""Keeps the spool writable: spares ahead, a new instance after a bad disk, losses declared.

Knows when to try and how long to pause. Knows no modes and nothing of HTTP.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from sidecar.spool.backlog import Backlog
from sidecar.spool.errors import SpoolError
from sidecar.spool.instance_rotation import InstanceRotation
from sidecar.spool.recovery import Recovered
from sidecar.spool.segment_pool import SegmentPool

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
AHEAD = 2
"""Spares. With one, a disk that is slow to make the next would cost ALLOWs under load."""
GATHER_SECONDS = 1.0
"""How long dropped records are counted before a gap record declares them."""


class Maintenance:
    """The loop beside the writer. Whoever changes something calls `wake`."""

    def __init__(
        self,
        spares: SegmentPool,
        backlog: Backlog,
        chores: Executor,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._spares = spares
        self._backlog = backlog
        self._chores = chores
        self._entropy = entropy
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def start(self, succession: InstanceRotation, found: Recovered) -> None:
        """A disk that takes nothing is no reason not to start: the spool then refuses every record,
        and `run` tries again."""
        self._succession = succession
        self._tail = succession.tail
        if found.resumed is not None:
            await self._in_thread(
                succession.writer.resume, found.resumed.segment.path, found.resumed.offset
            )
        succession.resume(found)
        succession.writer.start()
        await self._attend()

    async def run(self) -> None:
        """Never returns; raises where the writer died of anything but the disk."""
        pause = FIRST_PAUSE
        while True:
            self._woken.clear()
            if self._succession.fault is not None:
                raise self._succession.fault
            well = await self._attend()
            if not well:
                # What failed just now has woken us too; it is not tried again without a pause.
                self._woken.clear()
            pause = FIRST_PAUSE if well else min(pause * 2, LONGEST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if well else self._jittered(pause)):
                    await self._woken.wait()

    def wake(self) -> None:
        """Something may have to be done, or may have become possible."""
        self._woken.set()

    def dropped(self, reason: str) -> None:
        """A record that was answered for found no place."""
        losses = self._succession.losses
        if not losses:
            self._loop.call_later(GATHER_SECONDS, self.wake)
        losses.dropped(reason)

    async def close(self, seconds: float) -> bool:
        """Refuse records from now on; return once those that were taken are on disk, or after
        `seconds`. Whether the writer has stopped: on a disk that hangs it has not."""
        succession = self._succession
        if succession.refusal is None and succession.losses:
            succession.declare()
        succession.closed, succession.refusal = True, "the sidecar is stopping"
        try:
            async with asyncio.timeout(seconds):
                await self._tail.idle()
        except TimeoutError:
            log.error("records are still on their way to the disk, and nobody waits any longer")
            self._tail.discard()
        await asyncio.sleep(0)  # what became durable last may be a declaration: it is noted now
        await self._backlog.retire()
        await self._spares.close(seconds)
        return await self._in_thread(succession.writer.stop, seconds)

    async def _attend(self) -> bool:
        """Do what there is to do; whether nothing is left."""
        succession = self._succession
        await self._prepare()
        if succession.refusal is not None and self._tail.spares:
            await self._revive()
            await self._prepare()
        if succession.refusal is None and succession.losses:
            succession.declare()
        await self._backlog.retire()
        waits = succession.refusal is not None or succession.losses
        return len(self._tail.spares) >= AHEAD and not waits

    async def _prepare(self) -> None:
        tail = self._tail
        while len(tail.spares) < AHEAD and not self._succession.closed:
            spare = await self._spares.make()
            if spare is None and await self._backlog.trim(all_of_it=True):
                continue  # what is only kept makes room for what is new
            tail.starved = spare is None
            if spare is None:
                break
            tail.spares.append(spare)

    async def _revive(self) -> None:
        if not self._succession.closed:
            # The succession reports a failure itself; the next round tries again.
            with contextlib.suppress(SpoolError):
                await asyncio.shield(self._succession.begin())

    def _jittered(self, pause: float) -> float:
        return pause * (0.5 + self._entropy(1)[0] / 512)

    def _in_thread(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._chores, work, *arguments)
