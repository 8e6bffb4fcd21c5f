"""Ends one instance, begins the next, and declares which records were lost.

After a failed write or sync, in this order:

1. All waiters for records that are not on disk get an error, and every new record is refused.
2. The instance ends after its last synced record. Synced records still ship.
3. A new instance begins in its own directory, with a `gap` record that names the old instance, the
first lost number and how many records are lost. Once the gap record is on disk, records are
accepted again.
4. While the disk stays bad, `maintenance` retries step 3 indefinitely, with growing pauses.

A loss is declared at least once: if the process dies between the gap record and the saved ending,
the next start declares it again. Counts of records that mode `best_effort` dropped are held in
memory, and lost in a crash.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.ground.errors import worded
from policies.ground.ids import uuid7
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.trail.record import Record, gap_record
from sidecar.spool.instance import Instance, SpoolResources
from sidecar.spool.reading.backlog import Backlog
from sidecar.spool.recovery import Recovered
from sidecar.spool.storage.layout import Aside, Ending, instance_directory, write_ending
from sidecar.spool.writing.appender import Appender
from sidecar.spool.writing.writer import Writer

log = logging.getLogger(__name__)

_GAP_BYTES = 4096
"""The bytes that must be free for each gap record if no spare segment is ready."""


class Declaration(NamedTuple):
    endings: list[tuple[Instance, Ending]]
    dropped: dict[str, int]
    records: list[Record]


class Losses:
    """Collects lost records until gap records declare them. `gaps` counts the gap records on disk,
    and `records` the records known to be lost."""

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self.gaps = 0
        self.records = 0
        self._now = clock.now
        self._random_bytes = random_bytes
        self._instances: list[Instance] = []
        self._dropped: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of gap records needed to declare all losses."""
        return len(self._instances) + len(self._dropped)

    def ended(self, instance: Instance, ending: Ending) -> None:
        """Note that the instance ended, or that it ended at an earlier record than was known
        before."""
        # An ending that recovery found has not been counted yet, so all of its loss counts.
        former = None if instance.ending is ending else instance.ending
        self.records += (ending.lost or 0) - (0 if former is None else former.lost or 0)
        instance.ending = ending
        if instance not in self._instances:
            self._instances.append(instance)

    def dropped(self, reason: str) -> None:
        self.records += 1
        self._dropped[reason] = self._dropped.get(reason, 0) + 1

    def take(self) -> Declaration:
        """Take all losses that are to be declared, with the gap records that declare them. Call
        `confirmed` or `failed` with the result afterwards."""
        endings = [(each, each.ending) for each in self._instances if each.ending is not None]
        # Taken, not copied: what is lost from now on goes into the next declaration.
        dropped = self._dropped
        self._instances, self._dropped = [], {}
        gaps = [(each.reason, of.id, each.first, each.lost) for of, each in endings]
        # A dropped record never had an instance or a number.
        gaps_of_dropped = [(reason, None, None, count) for reason, count in dropped.items()]
        records = [self._gap(*each) for each in (*gaps, *gaps_of_dropped)]
        return Declaration(endings, dropped, records)

    def confirmed(self, declaration: Declaration) -> None:
        self.gaps += len(declaration.records)
        for instance, ending in declaration.endings:
            # If more was lost since, the instance is in the list again and is declared again.
            if instance.ending is ending:
                instance.ending = replace(ending, declared=True)

    def failed(self, declaration: Declaration) -> None:
        """Note that these gap records did not reach the disk, so that the losses are declared
        again."""
        again = [instance for instance, _ in declaration.endings]
        self._instances = again + [each for each in self._instances if each not in again]
        for reason, count in declaration.dropped.items():
            self._dropped[reason] = self._dropped.get(reason, 0) + count

    def _gap(
        self, reason: str, instance: str | None, first: int | None, lost: int | None
    ) -> Record:
        record_id = uuid7(self._now(), self._random_bytes(10))
        return gap_record(reason, instance=instance, first=first, lost=lost, record_id=record_id)


class InstanceRotation:
    """Replaces an instance whose chain is broken by a new one; owns the appender and the writer.
    `refusal` is the reason why no record is accepted, None if records are accepted. `closed` means
    that no record will be accepted ever again. `wake` asks `maintenance` to run."""

    def __init__(
        self, resources: SpoolResources, backlog: Backlog, wake: Callable[[], None]
    ) -> None:
        self.refusal: str | None = "the spool is not open yet"
        self.closed = False
        self.fault: BaseException | None = None
        self.sync_failures = 0
        self.disk_fault: str | None = None
        """A description of the last failed write, without its path; None once records are accepted
        again."""
        self.losses = Losses(resources.clock, resources.random_bytes)
        self.appender = Appender(
            resources.clock,
            segment_bytes=resources.segment_bytes,
            on_durable=backlog.notify,
            on_failed=self._on_write_failed,
            on_roll=wake,
        )
        self._loop = asyncio.get_running_loop()
        monotonic, callbacks = resources.clock.monotonic, (self.appender.on_written, self._on_crash)
        self.writer = Writer(resources.disk, self._loop, monotonic, *callbacks)
        batches = self.appender.batches
        batches.submit = self.writer.submit
        batches.write_at_once = (
            self.writer.write_at_once if resources.in_loop else lambda _job: False
        )
        self._resources = resources
        self._backlog = backlog
        self._wake = wake
        back = "the spool takes records again"
        self._outage = RepeatingOutageLogger(log, "the spool", back, monotonic)
        self._ordinal = 0

    def resume(self, found: Recovered) -> None:
        """Continue where the previous process stopped. If `found` has no segment to continue in,
        call `begin` next."""
        self._ordinal, self.appender.spares = found.ordinal, deque(found.spares)
        for instance in found.undeclared:
            assert instance.ending is not None
            self.losses.ended(instance, instance.ending)
        if found.resumed is not None:
            instance, segment, offset, n, prev = found.resumed
            self.appender.resume(instance, n, prev, segment.size - offset)
            self._backlog.current = instance
            self.refusal = None

    def begin(self) -> asyncio.Future[None]:
        """Begin a new instance in a spare segment; its first records declare the losses. The future
        is done once they are on disk, and records are accepted from then on."""
        # An ordinal is never reused, not even after a failure: its directory may be half made.
        self._ordinal += 1
        name = self._resources.random_bytes(16).hex()
        path = instance_directory(self._resources.root, self._ordinal, name)
        instance = Instance(self._ordinal, name, self._resources.source, path)
        # The gaps come first, so the log explains the break before anything that follows it.
        declaration = self.losses.take()
        instance.gaps = len(declaration.records)
        self._backlog.add(instance)
        future = self.appender.begin(instance, declaration.records)
        future.add_done_callback(partial(self._on_declared, instance, declaration))
        return future

    def declare(self) -> None:
        """Declare the losses by gap records in the current instance, whose own chain is whole."""
        # All of them or none: `take` hands them over together. A later round tries again.
        if not self.appender.spares and self.appender.room < _GAP_BYTES * len(self.losses):
            return
        declaration = self.losses.take()
        for record in declaration.records:
            self.appender.add((record,), denial=True)
        future = self.appender.durable()
        future.add_done_callback(partial(self._on_declared, self.appender.instance, declaration))

    def end(self, instance: Instance, reason: str, first: int, aside: Aside = "") -> None:
        """End the instance, so that it accepts no more records and ships none from number `first`
        on. The other arguments are those of `Ending`."""
        current = instance is self._backlog.current
        if instance.ending is not None:
            self._end_earlier(instance, instance.ending, reason, first, aside)
            return
        written = self.appender.n if current else instance.end
        # Its own leading gap records are no loss: they are declared again.
        lost = max(0, written - max(first, 0 if instance.end else instance.gaps))
        if instance.end or lost:
            self._record_loss(instance, Ending(reason, first, lost, aside))
        else:
            # It never reached the disk, and nothing in it was acknowledged.
            self._backlog.end(instance, Ending(reason, first, 0, declared=True))
        # Not after a failed write: on a bad disk, `maintenance` begins the next with pauses.
        if current and self.refusal is None:
            if self.appender.spares:
                self.begin()
            else:
                self.refusal = "there is no room for a new segment"
        self._wake()

    def _end_earlier(
        self, instance: Instance, former: Ending, reason: str, first: int, aside: Aside
    ) -> None:
        """End an instance once more that has already ended, if `first` is earlier than its end so
        far."""
        if first < former.first:
            lost = None if former.lost is None else former.lost + former.first - first
            self._record_loss(instance, Ending(reason, first, lost, aside or former.aside))
            self._wake()

    def _record_loss(self, instance: Instance, ending: Ending) -> None:
        name = instance.path.name
        log.error("spool instance `%s` ends at record %d: %s", name, ending.first, ending.reason)
        self.losses.ended(instance, ending)
        self._backlog.end(instance, ending)
        self._save_ending(instance)

    def _on_declared(
        self, instance: Instance, declaration: Declaration, future: asyncio.Future[None]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            self.losses.failed(declaration)
        else:
            # If we die before the ending is saved, the next start declares it once more.
            self.losses.confirmed(declaration)
            for ended, _ in declaration.endings:
                self._save_ending(ended)
            if instance.ending is None and not self.closed:
                self.refusal = None
                self.disk_fault = None
                self._outage.recovered()
        self._wake()

    def _on_write_failed(self, instance: Instance, error: OSError) -> None:
        self.sync_failures += 1
        # The first failure ends the instance; its later jobs fail without further effect.
        if instance.ending is not None:
            return
        self.disk_fault = worded(error)
        self._outage.failing_on("a write failed", self._resources.root, error)
        if instance is self._backlog.current:
            # Set in the same step in which the waiters fail: a retry must not find the spool open.
            self.refusal = self.refusal or "the disk takes no records at the moment"
            self.appender.discard()
        self.end(instance, "a write to the disk failed", instance.end)

    def _on_crash(self, error: BaseException) -> None:
        # A bug, not a bad disk: `maintenance` raises it, which ends the process.
        self.fault = error
        self.closed, self.refusal = True, "the spool's writer died"
        self.appender.discard()
        self._wake()

    def _save_ending(self, instance: Instance) -> None:
        """Save the ending in the instance's directory, for the next start. On a bad disk this may
        fail: then the next start ships the records that it can read, although the gap record
        declares them lost."""
        assert instance.ending is not None
        with contextlib.suppress(RuntimeError):  # already closed: the next start saves it
            ending = self._resources.disk, instance.path, instance.ending
            saving = self._loop.run_in_executor(self._resources.executor, write_ending, *ending)
            saving.add_done_callback(_report)


def _report(saving: asyncio.Future[None]) -> None:
    if not saving.cancelled() and saving.exception() is not None:
        log.warning("the ending of a spool instance can't be saved: %s", saving.exception())
