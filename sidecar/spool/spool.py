"""Where a record goes before its answer leaves, and from where it ships.

    spool = await Spool.open(settings, source_id, clock, os.urandom)
    group.create_task(spool.run())
    placed = spool.put(record, denial=False)        numbered and chained at once
    await placed.durable                            on disk, as the mode demands
    batch = await spool.batch(1_000_000)            read back from disk
    await spool.acknowledge(batch.instance, n)      in the control API's log: forgotten here

Knows the modes and what each does when a record finds no place. `succession` and `keeper` know how
the spool stays writable, `backlog` what is still to be shipped.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.trail.record import Record
from sidecar.settings.spool import SpoolSettings
from sidecar.spool.deadlines import Deadlines
from sidecar.spool.disk import Disk
from sidecar.spool.errors import SpoolError, SpoolSlow, SpoolUnwritable
from sidecar.spool.layout import CONFLICT, DAMAGED
from sidecar.spool.reader import RecordBatch, UnreadableRecord
from sidecar.spool.startup import SpoolComponents, open_parts
from sidecar.spool.state import State, state_of

_NOT_KEPT = bytes(32)


class Placed(NamedTuple):
    """What `put` gives back. Of a record that mode `best_effort` had to drop, `kept` is false and
    `core_hash` 32 zeros: nothing may cite it."""

    core_hash: bytes
    durable: asyncio.Future[None]
    kept: bool = True


class Spool:
    """One directory of records, one process, one event loop."""

    def __init__(self, settings: SpoolSettings, parts: SpoolComponents, clock: Clock) -> None:
        self._keeper = parts.keeper
        self._succession = parts.succession
        self._tail = parts.succession.tail
        self._backlog = parts.backlog
        self._space = parts.space
        self._chores = parts.chores
        self._lock = parts.lock
        self._best_effort = settings.mode == "best_effort"
        self._memory_bytes = settings.memory_bytes
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done.set_result(None)
        self._deadlines = (
            Deadlines(clock.monotonic, settings.timeout_ms / 1000)
            if settings.mode == "strict"
            else None
        )

    @classmethod
    async def open(
        cls,
        settings: SpoolSettings,
        source_id: str,
        clock: Clock,
        entropy: Callable[[int], bytes],
        disk: Disk | None = None,
    ) -> "Spool":
        """Take the directory, and go on where a former life ended. `SpoolLocked` where another
        process has it, `SpoolUnwritable` where it can't be made or read."""
        parts = await open_parts(settings, source_id, clock, entropy, disk or Disk())
        return cls(settings, parts, clock)

    def put(self, record: Record, *, denial: bool, hurry: bool = True) -> Placed:
        """Number the record, chain it, and send it on its way to the disk. Raises a `SpoolError`
        where it finds no place, before it has a number; `durable` raises one where the disk does
        not take it. In mode `best_effort` neither does. Without `hurry` nobody waits: it goes to
        the disk with the next record that somebody waits for, or a moment later, and `durable` says
        nothing."""
        return self.put_together((record,), denial=denial, hurry=hurry)[0]

    def put_together(
        self, records: Sequence[Record], *, denial: bool, hurry: bool = True
    ) -> list[Placed]:
        """As `put`, for the records of one request: all of them find a place and become durable,
        or none does. They share one future."""
        tail = self._tail
        try:
            if self._succession.refusal is not None:
                raise SpoolUnwritable(self._succession.refusal)
            if tail.waiting > self._memory_bytes:
                raise SpoolSlow("records wait in memory for a disk that does not take them")
            digests = tail.add(records, denial=denial, hurry=hurry)
        except SpoolError as error:
            if not self._best_effort:
                raise
            for _ in records:
                self._keeper.dropped(error.message)
            return [Placed(_NOT_KEPT, self._done, kept=False)] * len(records)
        durable = self._done
        if hurry and not self._best_effort:
            durable = tail.durable()
            if self._deadlines is not None:
                self._deadlines.watch(durable)
        return [Placed(digest, durable) for digest in digests]

    async def run(self) -> None:
        """What keeps the spool going beside its writer; to be run for as long as it is open. Raises
        where the writer died of a bug: nothing could be recorded any more."""
        await self._keeper.run()

    async def close(self, seconds: float) -> None:
        """Refuse records, wait up to `seconds` for those that were taken, give up the directory.
        What is not shipped ships after the next start."""
        stopped = await self._keeper.close(seconds)
        self._chores.shutdown(wait=False)
        if stopped:
            os.close(self._lock)
        # Else a write may still happen: the directory is given up when the process ends.

    async def wait_unshipped(self) -> None:
        """Returns once there is something to ship."""
        await self._backlog.wait()

    async def batch(self, max_bytes: int, max_records: int = 512) -> RecordBatch | None:
        """The oldest unacknowledged records of one instance, at least one and else at most
        `max_bytes`; None where there are none. What can't be read back ends its instance and is
        declared as lost. Raises `OSError` where the disk fails to read."""
        while True:
            try:
                return await self._backlog.read(max_bytes, max_records)
            except UnreadableRecord as damage:
                self._succession.end(damage.instance, str(damage), damage.n, DAMAGED)
                await self._backlog.retire()

    async def hash_of(self, instance: str, n: int) -> bytes | None:
        """The core hash of a record that is still on disk, acknowledged or not, else None. Raises
        `OSError` where the disk can't say."""
        try:
            return await self._backlog.hash_of(instance, n)
        except UnreadableRecord as damage:
            self._succession.end(damage.instance, str(damage), damage.n, DAMAGED)
            return None

    async def acknowledge(self, instance: str, n: int) -> None:
        """Everything up to record `n` of the instance is in the control API's log."""
        if await self._backlog.acknowledge(instance, n):
            self._keeper.wake()

    async def rewind(self, instance: str, n: int) -> bool:
        """The control API has lost what it had of the instance from record `n` on: it is shipped
        again. False where it is not kept any more."""
        done = self._backlog.rewind(instance, n)
        if done:
            await self._backlog.trim()
        return done

    async def trim(self) -> None:
        """Let go of what was kept long enough after it was acknowledged."""
        if await self._backlog.trim():
            self._keeper.wake()

    async def set_aside(self, instance: str, reason: str) -> None:
        """The control API refuses the instance: what is left of it is kept in a directory whose
        name says so, and declared as lost."""
        refused = self._backlog.find(instance)
        if refused is not None:
            self._succession.end(refused, reason, refused.acked, CONFLICT)
            await self._backlog.retire()

    @property
    def source(self) -> str:
        """The id under which records are made."""
        return self._tail.instance.source

    @property
    def instance(self) -> str:
        """The id of the instance that is written."""
        return self._tail.instance.id

    @property
    def state(self) -> State:
        return state_of(self._succession)

    @property
    def refusal(self) -> str | None:
        """Why nothing is taken, in words; None where something is."""
        return self._succession.refusal

    @property
    def depth(self) -> int:
        """Records on disk that the control API is not known to have."""
        return self._backlog.depth

    @property
    def bytes_held(self) -> int:
        """Bytes of all segment files, spares and what was set aside included."""
        return self._space.held

    @property
    def bytes_waiting(self) -> int:
        """Bytes in memory on their way to the disk."""
        return self._tail.waiting

    def oldest_age(self) -> float:
        """Seconds that the oldest unshipped record has been on disk; 0 where there is none."""
        return self._backlog.oldest_age()

    @property
    def gaps(self) -> int:
        """Gap records written since the start."""
        return self._succession.losses.gaps

    @property
    def lost(self) -> int:
        """Records known to be lost to the log since the start."""
        return self._succession.losses.records

    @property
    def sync_failures(self) -> int:
        """Failed writes and syncs since the start."""
        return self._succession.sync_failures
