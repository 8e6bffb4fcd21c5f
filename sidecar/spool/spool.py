"""The spool's public interface. A record is put in before the request is answered, and is read back
from here to be shipped.

spool = await Spool.open(settings, source_id, clock, os.urandom)
group.create_task(spool.run())
placed = spool.put(record, denial=False)        numbered and chained at once
await placed.durable                            on disk, as the mode demands
batch = await spool.batch(1_000_000)            read back from disk
await spool.acknowledge(batch.instance, n)      in the control API's log: may be deleted here
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.ground.errors import worded
from policies.trail.record import Record
from sidecar.settings.sections import SpoolSettings
from sidecar.spool.errors import SpoolError, SpoolLocked, SpoolSlow, SpoolUnwritable, State
from sidecar.spool.instance import SpoolResources
from sidecar.spool.reading.backlog import Backlog
from sidecar.spool.reading.reader import RecordBatch, UnreadableRecord
from sidecar.spool.recovery import Recovered, recover
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.frames import FRAME, MAX_PAYLOAD
from sidecar.spool.storage.layout import CONFLICT, DAMAGED, Quota, SegmentPool
from sidecar.spool.writing.instance_rotation import InstanceRotation
from sidecar.spool.writing.maintenance import QUIET_SECONDS, Maintenance

RETAINED_FRACTION = 8
"""The share of `max_bytes` that acknowledged segments may take: one byte in this many."""

_NOT_STORED = bytes(32)


class SpoolComponents(NamedTuple):
    """The parts of an open spool. `executor` is the one thread besides the writer's and the segment
    pool's. `lock` is the file descriptor that holds the lock on the directory."""

    maintenance: Maintenance
    rotation: InstanceRotation
    backlog: Backlog
    quota: Quota
    executor: ThreadPoolExecutor
    lock: int


async def open_components(
    settings: SpoolSettings,
    source_id: str,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
    disk: Disk | None,
    quiet_seconds: float,
) -> SpoolComponents:
    """Lock the directory, recover its state, and build the parts of a spool. Raises `SpoolLocked`
    if another process holds the directory, and `SpoolUnwritable` if it can't be created or read, or
    accepts no new files."""
    disk = disk or Disk()
    # One thread, so that file operations on the backlog never overtake each other.
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool-executor")
    in_thread = asyncio.get_running_loop().run_in_executor
    root, size = settings.dir, settings.segment_bytes
    lock: int | None = None
    try:
        # Locked before anything is read: recovery removes files that another process may be using.
        lock = await in_thread(executor, _lock_directory, disk, root)
        found: Recovered = await in_thread(executor, recover, disk, root, source_id, size)
        quota = Quota(settings.max_bytes, found.held)
        keep = settings.max_bytes // RETAINED_FRACTION
        # In mode `strict` the loop must be free to answer when the disk is late.
        resources = SpoolResources(
            root, source_id, size, disk, executor, clock, random_bytes, settings.mode != "strict"
        )
        backlog = Backlog(resources, quota, found.instances, keep, found.waiting)
        spares = SegmentPool(root, disk, quota, size, found.spares, clock.monotonic)
        maintenance = Maintenance(spares, backlog, resources, quiet_seconds)
        # Rotation and maintenance need each other, so maintenance gets the rotation only here.
        rotation = InstanceRotation(resources, backlog, maintenance.wake)
        await maintenance.start(rotation, found)
    except BaseException as error:
        # Do not leave the directory locked by a spool that never opened.
        executor.shutdown(wait=False)
        if lock is not None:
            os.close(lock)
        if isinstance(error, OSError):
            raise SpoolUnwritable(f"the spool can't be opened: {worded(error, root)}") from error
        raise
    return SpoolComponents(maintenance, rotation, backlog, quota, executor, lock)


def _lock_directory(disk: Disk, root: Path) -> int:
    disk.make_directory(root)
    lock = disk.lock(root / "lock")
    if lock is None:
        raise SpoolLocked(
            f"the spool `{root}` is held by another process: each sidecar needs its own `spool.dir`"
        )
    try:
        # What is there may be writable all the same. Then the sidecar would be ready, and deny
        # everything from the next segment on.
        disk.require_new_files(root)
    except OSError:
        os.close(lock)
        raise
    return lock


class Deadlines:
    """Limits the wait for the disk in mode `strict`: a future that is not done within `seconds`
    fails with `SpoolSlow`. The limit is the same for all, so futures fall due in the order in which
    they came."""

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._watched: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, future: asyncio.Future[None]) -> None:
        self._watched.append((self._monotonic() + self._seconds, future))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._expire_due)

    def _expire_due(self) -> None:
        now = self._monotonic()
        watched = self._watched
        while watched and (watched[0][1].done() or watched[0][0] <= now):
            _, future = watched.popleft()
            if not future.done():
                # The record stays on its way to the disk. If it gets there it ships, and the log
                # then holds a decision that was answered with 503.
                future.set_exception(SpoolSlow())
                # Marks it as retrieved: asyncio would report it if the client hung up.
                future.exception()
        # One timer for the next future due, not one for each: most are done before they are due.
        self._timer = (
            self._loop.call_later(watched[0][0] - now, self._expire_due) if watched else None
        )


class PlacedRecord(NamedTuple):
    """The result of `Spool.put`. `stored` is False for a record that mode `best_effort` had to
    drop; its `core_hash` is then 32 zero bytes, and nothing may cite it."""

    core_hash: bytes
    durable: asyncio.Future[None]
    stored: bool = True


class Spool:
    def __init__(self, settings: SpoolSettings, components: SpoolComponents, clock: Clock) -> None:
        self._maintenance = components.maintenance
        self._rotation = components.rotation
        self._appender = components.rotation.appender
        self._backlog = components.backlog
        self._quota = components.quota
        self._executor = components.executor
        self._lock = components.lock
        self.run = components.maintenance.run
        """Keeps the spool writable; run this coroutine for as long as the spool is open. Raises if
        a bug has ended the writer: then nothing can be recorded."""
        self.wait_unshipped = components.backlog.wait
        """Waits until at least one record on disk is not acknowledged."""
        self._best_effort = settings.mode == "best_effort"
        self._memory_bytes = settings.memory_bytes
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done.set_result(None)
        strict = settings.mode == "strict"
        self._deadlines = Deadlines(clock.monotonic, settings.timeout_ms / 1000) if strict else None

    @classmethod
    async def open(
        cls,
        settings: SpoolSettings,
        source_id: str,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        disk: Disk | None = None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> "Spool":
        """Lock the directory, and continue where the previous process stopped. Raises `SpoolLocked`
        if another process holds the directory, and `SpoolUnwritable` if it can't be created or
        read, or accepts no new files."""
        parts = await open_components(settings, source_id, clock, random_bytes, disk, quiet_seconds)
        return cls(settings, parts, clock)

    def put(self, record: Record, *, denial: bool, urgent: bool = True) -> PlacedRecord:
        """Number and chain the record, and queue it for the disk.

        Raises a `SpoolError` if the record does not fit; it then has no number. `durable` raises a
        `SpoolError` if the disk does not take the record. In mode `best_effort` neither raises.
        Without `urgent`, the record goes to disk with the next urgent one, or a moment later, and
        `durable` is done at once.
        """
        return self.put_together((record,), denial=denial, urgent=urgent)[0]

    def put_together(
        self, records: Sequence[Record], *, denial: bool, urgent: bool = True
    ) -> list[PlacedRecord]:
        """Put the records of one request like `put`, but either all of them are stored and become
        durable, or none is. They share one future."""
        appender = self._appender
        try:
            if self._rotation.refusal is not None:
                raise SpoolUnwritable(self._rotation.refusal)
            # A disk that hangs must not fill the memory.
            if appender.waiting > self._memory_bytes:
                raise SpoolSlow("records wait in memory for a disk that does not take them")
            digests = appender.add(records, denial=denial, urgent=urgent)
        except SpoolError as error:
            if not self._best_effort:
                raise
            # This mode answers without a record. A gap record will at least declare the loss.
            for _ in records:
                self._maintenance.dropped(error.message)
            return [PlacedRecord(_NOT_STORED, self._done, stored=False)] * len(records)
        # A group shares one future: one write stores all of its records or none.
        durable = self._done
        if urgent and not self._best_effort:
            durable = appender.durable()
            if self._deadlines is not None:
                self._deadlines.watch(durable)
        return [PlacedRecord(digest, durable) for digest in digests]

    async def close(self, seconds: float) -> None:
        """Refuse new records, wait up to `seconds` for those already taken, and release the
        directory. Records that have not shipped ship after the next start."""
        stopped = await self._maintenance.close(seconds)
        self._executor.shutdown(wait=False)
        # On a disk that hangs a write may still happen: keep the lock until the process ends, or
        # two processes would write to one instance.
        if stopped:
            os.close(self._lock)

    async def batch(self, max_bytes: int, max_records: int = 512) -> RecordBatch | None:
        """Return the oldest unacknowledged records of one instance, of at most `max_bytes` unless
        the first record alone is larger; None if all are acknowledged. Raises `OSError` if the disk
        fails to read."""
        while True:
            try:
                return await self._backlog.read(max_bytes, max_records)
            except UnreadableRecord as damage:
                # Nothing after a missing record can ever ship: declare it lost, and ship the next.
                self._rotation.end(damage.instance, str(damage), damage.n, DAMAGED)
                await self._backlog.retire()

    async def hash_of(self, instance: str, n: int) -> bytes | None:
        """Return the core hash of a record that is still on disk, whether acknowledged or not; None
        if it is not on disk or is damaged. Raises `OSError` if the disk fails to read."""
        try:
            return await self._backlog.hash_of(instance, n)
        except UnreadableRecord as damage:
            self._rotation.end(damage.instance, str(damage), damage.n, DAMAGED)
            return None

    async def acknowledge(self, instance: str, n: int) -> None:
        """Note that all records of the instance up to `n` are in the control API's log."""
        # Room was freed: a spare can be made, and a full spool takes ALLOWs again.
        if await self._backlog.acknowledge(instance, n):
            self._maintenance.wake()

    async def rewind(self, instance: str, n: int) -> bool:
        """Ship again from record `n` on, because the control API has lost records of the instance.
        Returns False if the records are no longer on disk, or were not acknowledged yet."""
        if done := self._backlog.rewind(instance, n):
            await self._backlog.trim()
        return done

    async def trim(self) -> None:
        """Delete the acknowledged segments that were retained for long enough."""
        if await self._backlog.trim():
            self._maintenance.wake()

    async def set_aside(self, instance: str, reason: str) -> None:
        """End an instance that the control API refuses. Its remaining files stay in a directory
        named `conflict-…`, and its remaining records are declared lost."""
        refused = self._backlog.find(instance)
        if refused is not None:
            self._rotation.end(refused, reason, refused.acked, CONFLICT)
            await self._backlog.retire()

    @property
    def source(self) -> str:
        return self._appender.instance.source

    @property
    def instance(self) -> str:
        return self._appender.instance.id

    @property
    def state(self) -> State:
        """The kinds of records that the spool accepts at the moment. It is full once the largest
        denial might not fit; smaller ones may still fit."""
        appender = self._appender
        if self._rotation.refusal is not None:
            return State.UNWRITABLE
        # Follows the conditions under which `Appender.add` refuses a record.
        if not appender.denials_only:
            return State.OPEN
        return State.DENIALS_ONLY if appender.room > FRAME + MAX_PAYLOAD else State.FULL

    @property
    def refusal(self) -> str | None:
        """The reason why the spool accepts no records; None if it accepts some."""
        return self._rotation.refusal

    @property
    def disk_fault(self) -> str | None:
        """The fault of the disk, such as `ENOSPC (no space left on device)`; None if the disk
        accepts records and has room for more."""
        return self._rotation.disk_fault or self._maintenance.spares.disk_fault

    @property
    def occupied_by(self) -> str:
        """A description of what fills the room up to `max_bytes`."""
        return self._maintenance.occupied_by()

    @property
    def depth(self) -> int:
        """The number of records on disk that are not acknowledged, so far as is known."""
        return self._backlog.depth

    @property
    def bytes_held(self) -> int:
        """The bytes of all segment files, including spares and directories that were set aside."""
        return self._quota.held

    @property
    def bytes_waiting(self) -> int:
        """The bytes of records in memory that are on their way to the disk."""
        return self._appender.waiting

    def oldest_age(self) -> float:
        """Return the seconds that the oldest unshipped record has been on disk, including the time
        before this process started; 0 if all records are shipped."""
        return self._backlog.oldest_age()

    @property
    def gaps(self) -> int:
        """The number of gap records written since the start."""
        return self._rotation.losses.gaps

    @property
    def lost(self) -> int:
        """The number of records since the start that are known to be missing from the log."""
        return self._rotation.losses.records

    @property
    def sync_failures(self) -> int:
        """The number of failed writes and syncs since the start."""
        return self._rotation.sync_failures
