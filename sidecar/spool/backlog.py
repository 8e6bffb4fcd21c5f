"""What is on disk and not yet acknowledged: read back in order, and forgotten a while after it is.

Old instances come before the current one; `kept` says what stays though all of it is acknowledged.
Knows nothing of HTTP, and nothing of writing records.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TypeVar

from policies.ground.clock import Clock
from sidecar.spool.disk import Disk
from sidecar.spool.instance import Instance, RecordPosition, Segment
from sidecar.spool.layout import Ending, aside_directory, write_acked
from sidecar.spool.oldest_age import OldestAge
from sidecar.spool.quota import Quota
from sidecar.spool.reader import RecordBatch, read_batch, read_hash
from sidecar.spool.retention import RetainedInstances
from sidecar.spool.state_logger import StateLogger

log = logging.getLogger(__name__)

T = TypeVar("T")


class Backlog:
    """The instances of a spool, the last of which may be the one that is written (`current`).
    One reader at a time: `read`, then `acknowledge`."""

    def __init__(
        self,
        disk: Disk,
        chores: Executor,
        clock: Clock,
        space: Quota,
        instances: Iterable[Instance],
        keep_bytes: int = 0,
    ) -> None:
        self.instances: deque[Instance] = deque(instances)
        self.current: Instance | None = None
        self._disk = disk
        self._chores = chores
        self._loop = asyncio.get_running_loop()
        self._space = space
        self._arrived = asyncio.Event()
        self._behind = RecordPosition(0, 0, 0)
        self._retiring = asyncio.Lock()
        self._trouble = StateLogger(log, "tidying the spool")
        self._age = OldestAge(clock.monotonic)
        self._kept = RetainedInstances(clock.monotonic, keep_bytes)
        for instance in self.instances:
            self._kept.note(instance)
        self.arrived()

    @property
    def depth(self) -> int:
        """Records on disk that are not acknowledged."""
        return sum(instance.unshipped for instance in self.instances)

    def oldest_age(self) -> float:
        """Seconds since the oldest of them reached the disk, or since the start if it was there
        before; 0 where there is none."""
        return self._age.seconds()

    def arrived(self) -> None:
        """Records became durable."""
        self._age.grown_to(self.depth)
        self._arrived.set()

    def add(self, instance: Instance) -> None:
        """A new instance, from now on the one that is written."""
        self.instances.append(instance)
        self.current = instance

    def end(self, instance: Instance, ending: Ending) -> None:
        """Nothing from `ending.first` on is shipped any more."""
        depth = self.depth
        instance.ending = ending
        instance.end = min(instance.end, ending.first)
        self._age.shrunk_by(depth - self.depth)

    async def wait(self) -> None:
        """Returns once there is something to ship."""
        while not self.depth:
            self._arrived.clear()
            await self._arrived.wait()

    async def read(self, max_bytes: int, max_records: int) -> RecordBatch | None:
        """The oldest unacknowledged records; None where there are none. Raises `Unreadable`, or
        `OSError` where the disk can't say."""
        for instance in self.instances:
            if instance.unshipped:
                batch, self._behind = await self._in_thread(
                    read_batch, self._disk, instance, list(instance.segments), instance.start(),
                    instance.acked, instance.end, max_bytes, max_records,
                )  # fmt: skip
                return batch
        return None

    async def hash_of(self, instance_id: str, n: int) -> bytes | None:
        """The core hash of a record that is still on disk, acknowledged or not; None where none
        such is. Raises as `read`."""
        instance = self.find(instance_id)
        cursor = None if instance is None or n >= instance.end else instance.before(n)
        if instance is None or cursor is None:
            return None
        segments = list(instance.segments)
        return await self._in_thread(read_hash, self._disk, instance, segments, cursor, n)

    def rewind(self, instance_id: str, n: int) -> bool:
        """Everything from record `n` on is to be shipped again; False where it is not kept."""
        instance = self.find(instance_id)
        cursor = None if instance is None else instance.before(n)
        if instance is None or cursor is None or n >= instance.acked:
            return False
        # If we die here, the note still says what was acknowledged once; the control API's next
        # refusal brings us here again.
        instance.acked, instance.cursor = n, cursor
        self._kept.note_anew(instance)
        self.arrived()
        return True

    async def trim(self, *, all_of_it: bool = False) -> int:
        """Let go of segments that were kept long enough, or take too much room; bytes freed."""
        freed = 0
        while (instance := self._kept.next(all_of_it=all_of_it)) is not None:
            freed += await self._in_thread(
                self._forget, instance, instance.acked, [instance.segments.popleft()]
            )
        self._space.give(freed)
        return freed

    async def acknowledge(self, instance_id: str, n: int) -> int:
        """Everything up to record `n` of the instance is in the control API's log; bytes freed."""
        instance = self.find(instance_id)
        if instance is None:
            return 0
        depth = self.depth
        instance.acked = max(instance.acked, min(n + 1, instance.end))
        self._age.shrunk_by(depth - self.depth)
        if self._behind.n == instance.acked:
            instance.cursor = self._behind
        self._kept.note(instance)
        await self._in_thread(self._forget, instance, instance.acked, [])
        return await self.trim() + await self.retire()

    async def retire(self) -> int:
        """Let go of instances of which nothing is left to ship or to declare; bytes freed. What
        can't be moved or removed is tried again the next time."""
        total = 0
        async with self._retiring:
            for instance in [each for each in self.instances if self._finished(each)]:
                freed = await self._in_thread(self._dissolve, instance)
                if freed is not None:
                    self.instances.remove(instance)
                    self._kept.drop(instance)
                    self._space.give(freed)
                    total += freed
        return total

    def _finished(self, instance: Instance) -> bool:
        ending = instance.ending
        over = instance is not self.current if ending is None else ending.declared
        return over and not instance.unshipped

    def find(self, instance_id: str) -> Instance | None:
        return next((each for each in self.instances if each.id == instance_id), None)

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        # Shielded: a loop that is cancelled must not leave half of it undone.
        return await asyncio.shield(self._loop.run_in_executor(self._chores, work, *arguments))

    def _forget(self, instance: Instance, acked: int, finished: list[Segment]) -> int:
        """Bytes freed. What can't be removed is found again at the next start."""
        freed = 0
        try:
            # First the files, since a full disk may have no room for the note.
            for segment in finished:
                self._disk.remove(segment.path)
                freed += segment.size
            write_acked(self._disk, instance.path, acked)
        except OSError as error:
            self._trouble.is_(f"an acknowledged segment can't be removed: {error}")
        return freed

    def _dissolve(self, instance: Instance) -> int | None:
        """Bytes freed; None where nothing could be done."""
        try:
            if instance.ending is not None and instance.ending.aside:
                aside = aside_directory(instance.path, instance.ending.aside)
                self._disk.rename(instance.path, aside)
                self._disk.sync_directory(aside.parent)
                return 0
            self._disk.remove_directory(instance.path)
        except OSError as error:
            self._trouble.is_(f"a finished instance can't be put away: {error}")
            return None
        self._trouble.over()
        return sum(segment.size for segment in instance.segments)
