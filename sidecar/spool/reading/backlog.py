"""Reads the records on disk that are not yet acknowledged, in order. Older instances come before
the current one. `retention` decides which acknowledged segments stay."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from sidecar.spool.instance import Instance, RecordPosition, Segment, SpoolResources
from sidecar.spool.reading.reader import InstanceReader, RecordBatch, WaitingSince
from sidecar.spool.reading.retention import RetainedInstances, ShippedFiles
from sidecar.spool.storage.layout import Ending, Quota

T = TypeVar("T")

MARK_SECONDS = 0.25
"""The minimum seconds between two marks of `OldestAge`, before the limit `MARKS` is reached."""

MARKS = 512
"""The most marks that `OldestAge` keeps. One more drops every other mark and doubles the
spacing."""


class OldestAge:
    """Measures the age of the oldest item in a queue, without keeping a time for each item. Every
    item that ever arrived has a position; a mark says when the items from one position on arrived.
    The reported age may be too high, by at most the spacing of the marks."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._marks: deque[tuple[int, float]] = deque()
        self._spacing = MARK_SECONDS
        self._left = 0
        self._reached = 0

    def restore(self, depth: int, ages: Iterable[tuple[int, float]]) -> None:
        """Begin with `depth` items that are already in the queue. `ages` has pairs, in order: a
        position, and the age in seconds of the items from that position on."""
        now = self._monotonic()
        self._marks.extend((position, now - age) for position, age in ages)
        # Without any age, they count as arriving when `grow_to` first tells of them.
        if self._marks:
            self._reached = depth

    def grow_to(self, depth: int) -> None:
        reached = self._left + depth
        if reached == self._reached:
            return
        now = self._monotonic()
        if not self._marks or now - self._marks[-1][1] >= self._spacing:
            self._marks.append((self._reached, now))
            # A control API that is away for days must not fill the memory: keep every other mark.
            if len(self._marks) > MARKS:
                self._marks = deque(islice(self._marks, 0, None, 2))
                self._spacing *= 2
        self._reached = reached

    def shrink_by(self, count: int) -> None:
        self._left += count
        # The queue is empty: the next outage begins with the finest spacing again.
        if self._left == self._reached:
            self._marks.clear()
            self._spacing = MARK_SECONDS

    def seconds(self) -> float:
        """Return the age of the oldest item in seconds; 0 if the queue is empty."""
        if not self._marks:
            return 0.0
        # The second mark is at or before the oldest item left: the first describes none any more.
        while len(self._marks) > 1 and self._marks[1][0] <= self._left:
            self._marks.popleft()
        return self._monotonic() - self._marks[0][1]


class Reusable(NamedTuple):
    """A shipped segment that can be emptied and used again: `used` bytes of it are written, and
    `spare` is its path as a spare."""

    segment: Segment
    used: int
    spare: Path


class Backlog:
    """The records of all instances that are not yet acknowledged. The last instance may be the one
    being written (`current`). There may be only one reader: it calls `read`, then `acknowledge`.
    `waiting` has the times since when the records found at the start have waited."""

    def __init__(
        self,
        resources: SpoolResources,
        quota: Quota,
        instances: Iterable[Instance],
        retain_bytes: int,
        waiting: Iterable[WaitingSince] = (),
    ) -> None:
        self.instances: deque[Instance] = deque(instances)
        self.current: Instance | None = None
        self._disk = resources.disk
        self._executor = resources.executor
        self._loop = asyncio.get_running_loop()
        self._quota = quota
        self._new_records = asyncio.Event()
        self._after = RecordPosition(0, 0, 0)
        self._retiring = asyncio.Lock()
        self._monotonic = monotonic = resources.clock.monotonic
        self._files = ShippedFiles(resources.disk, monotonic)
        self._oldest = OldestAge(monotonic)
        now = resources.clock.now()
        # The wall clock may have been put back since: an age is never negative.
        ages = [(each.position, max(0, now - each.time) / 1e6) for each in waiting]
        self._oldest.restore(self.depth, ages)
        self._retained = RetainedInstances(monotonic, retain_bytes)
        for instance in self.instances:
            self._retained.retain(instance)
        self.notify()

    @property
    def depth(self) -> int:
        return sum(instance.unshipped for instance in self.instances)

    @property
    def largest(self) -> int:
        """The bytes of the largest segment that was not set aside; 0 if there is no segment."""
        sizes = (segment.size for each in self.instances for segment in each.segments)
        return max(sizes, default=0)

    def occupied_by(self, spare_bytes: int) -> str:
        """Return a description of what fills the room up to `max_bytes`, besides the `spare_bytes`
        of segments that are ready for use. The text has no numbers, which would change it each
        second."""
        own = sum(segment.size for each in self.instances for segment in each.segments)
        parts = []
        if self.depth:
            parts.append("records wait to be shipped; the log says why if that fails (`shipping`)")
        if self._quota.held > own + spare_bytes:
            parts.append(
                "directories that were set aside (`conflict-…`, `damaged-…`) or shipped segments "
                "that can't be removed take room"
            )
        return "; ".join(parts) or "the segments in use and those that are ready take it"

    def oldest_age(self) -> float:
        """Return the seconds since the oldest unacknowledged record reached the disk; for records
        from before the start, since the time in the record. 0 if every record is acknowledged."""
        return self._oldest.seconds()

    def quiet_seconds(self) -> float:
        """Return the seconds since records last became durable, were acknowledged or had to be sent
        again."""
        return self._monotonic() - self._touched

    def notify(self) -> None:
        self._touched = self._monotonic()
        self._oldest.grow_to(self.depth)
        self._new_records.set()

    def add(self, instance: Instance) -> None:
        self.instances.append(instance)
        self.current = instance

    def end(self, instance: Instance, ending: Ending) -> None:
        # Records that can't ship any more don't count for the age.
        depth = self.depth
        instance.ending = ending
        instance.end = min(instance.end, ending.first)
        self._oldest.shrink_by(depth - self.depth)

    async def wait(self) -> None:
        while not self.depth:
            self._new_records.clear()
            await self._new_records.wait()

    async def read(self, max_bytes: int, max_records: int) -> RecordBatch | None:
        """Return the oldest unacknowledged records; None if there are none. Raises
        `UnreadableRecord` if a record is damaged, and `OSError` if the disk fails to read."""
        for instance in self.instances:
            if instance.unshipped:
                reader = InstanceReader.of(self._disk, instance, instance.start())
                bounds = instance.acked, instance.end, max_bytes, max_records
                batch, self._after = await self._in_thread(reader.read_batch, *bounds)
                return batch
        return None

    async def hash_of(self, instance_id: str, n: int) -> bytes | None:
        """Return the core hash of a record that is still on disk, whether acknowledged or not; None
        if it is not on disk. Raises the same errors as `read`."""
        instance = self.find(instance_id)
        cursor = None if instance is None or n >= instance.end else instance.before(n)
        if instance is None or cursor is None:
            return None
        return await self._in_thread(InstanceReader.of(self._disk, instance, cursor).read_hash, n)

    def rewind(self, instance_id: str, n: int) -> bool:
        """Ship again from record `n` on. Returns False if that isn't possible, because the records
        are no longer on disk or were not acknowledged yet."""
        instance = self.find(instance_id)
        cursor = None if instance is None else instance.before(n)
        if instance is None or cursor is None or n >= instance.acked:
            return False
        # If we die here, the file `acked` still has the old number. The control API's next refusal
        # brings us here again.
        instance.acked, instance.cursor = n, cursor
        self._retained.retain_again(instance)
        self.notify()
        return True

    async def trim(self, *, everything: bool = False) -> int:
        """Delete the retained segments that are old enough or take too much room; all of them with
        `everything`. Returns the bytes freed."""
        freed = 0
        while (instance := self._retained.pop_expired(everything=everything)) is not None:
            segments = [instance.segments.popleft()]
            freed += await self._in_thread(self._files.remove, instance, instance.acked, segments)
        self._quota.release(freed)
        return freed

    async def drop(self, instance: Instance, reusable: Reusable | None) -> bool:
        """Delete all retained segments, but turn `reusable` into a spare segment. Returns whether
        it became a spare."""
        self._retained.retain(instance)
        reused = False
        # Removed from the list in the same step in which the thread gets its work: a read that was
        # submitted before still finds the file, and a later one does not look for it.
        while (owner := self._retained.pop_expired(everything=True)) is not None:
            segment = owner.segments.popleft()
            if reusable is not None and segment is reusable.segment:
                reused = await self._in_thread(self._files.reuse, *reusable)
                freed = 0 if reused else segment.size
            else:
                freed = await self._in_thread(self._files.remove, owner, owner.acked, [segment])
            self._quota.release(freed)
        return reused

    async def acknowledge(self, instance_id: str, n: int) -> int:
        """Note that all records up to `n` are in the control API's log. Returns the bytes freed."""
        instance = self.find(instance_id)
        if instance is None:
            return 0
        depth = self.depth
        # A receipt may cover records beyond those just read: a previous process sent them.
        instance.acked = max(instance.acked, min(n + 1, instance.end))
        self._oldest.shrink_by(depth - self.depth)
        self._touched = self._monotonic()
        # The next read continues here, without scanning from the segment's start.
        if self._after.n == instance.acked:
            instance.cursor = self._after
        self._retained.retain(instance)
        freed = await self._in_thread(self._files.remove, instance, instance.acked, [])
        self._quota.release(freed)
        return freed + await self.trim() + await self.retire()

    async def retire(self) -> int:
        """Remove the instances that have nothing left to ship or to declare. An instance that can't
        be moved or removed is tried again at the next call. Returns the bytes freed."""
        total = 0
        # One at a time: `ShippedFiles.retire` must not run twice for one directory.
        async with self._retiring:
            for instance in [each for each in self.instances if self._is_finished(each)]:
                freed = await self._in_thread(self._files.retire, instance)
                if freed is not None:
                    self.instances.remove(instance)
                    self._retained.drop(instance)
                    self._quota.release(freed)
                    total += freed
        return total

    def _is_finished(self, instance: Instance) -> bool:
        ending = instance.ending
        # An ending without its gap record on disk must survive a restart: it stays to be declared.
        over = instance is not self.current if ending is None else ending.declared
        return over and not instance.unshipped

    def find(self, instance_id: str) -> Instance | None:
        return next((each for each in self.instances if each.id == instance_id), None)

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        # Shielded: if the caller is cancelled, the thread still finishes its work.
        return await asyncio.shield(self._loop.run_in_executor(self._executor, work, *arguments))
