"""How one instance follows another: it ends, the next begins, and what was lost is declared.

What happens after a failed write or sync, in order:

1. Everyone who waits for a record that is not on disk is told so, and every new record is refused
   at once: `refusal` says why.
2. The instance ends behind its last synced record. What is synced ships on.
3. A new instance is made in a directory of its own. Its first record is a `gap` that names the old
   one, from which number on, and how many. Once that is on disk, records are taken again.
4. While the disk stays bad, step 3 is tried again, with growing pauses, for ever (`keeper`).

An instance that the control API refuses, or that can't be read back, ends while the disk is well:
then the new one takes over in the same step of the event loop, and no record is refused.

Knows why records are refused. Knows no modes, no time, and nothing of making room.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from policies.ground.clock import Clock
from sidecar.spool.appender import Appender
from sidecar.spool.backlog import Backlog
from sidecar.spool.disk import Disk
from sidecar.spool.instance import Instance
from sidecar.spool.layout import Ending, instance_directory, write_ending
from sidecar.spool.losses import Declaration, Losses
from sidecar.spool.recovery import Recovered
from sidecar.spool.state_logger import StateLogger
from sidecar.spool.writer import Writer

log = logging.getLogger(__name__)

_BAD_DISK = "the disk does not take records at the moment"
_NO_ROOM = "there is no room for a new segment"
_GAP_BYTES = 4096


class InstanceRotation:
    """Owns the writing end. `refusal` is why no record is taken, None where they are; `closed` is
    why none will be any more. `wake` is called where something may have to be done."""

    def __init__(
        self,
        root: Path,
        source: str,
        disk: Disk,
        chores: Executor,
        clock: Clock,
        entropy: Callable[[int], bytes],
        backlog: Backlog,
        segment_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self.refusal: str | None = "the spool is not open yet"
        self.closed = False
        self.fault: BaseException | None = None
        self.sync_failures = 0
        self.losses = Losses(clock, entropy)
        self.tail = Appender(
            clock,
            segment_bytes=segment_bytes,
            on_durable=backlog.arrived,
            on_failed=self._failed,
            on_roll=wake,
        )
        self._loop = asyncio.get_running_loop()
        self.writer = Writer(disk, self._loop, self.tail.settled, self._crashed)
        self.tail.submit = self.writer.submit
        self._root = root
        self._source = source
        self._disk = disk
        self._chores = chores
        self._entropy = entropy
        self._backlog = backlog
        self._wake = wake
        self._trouble = StateLogger(log, "the spool")
        self._ordinal = 0

    def resume(self, found: Recovered) -> None:
        """Go on where a former life ended. Where it left nothing to go on in, `begin` follows."""
        self._ordinal, self.tail.spares = found.ordinal, deque(found.spares)
        for instance in found.undeclared:
            assert instance.ending is not None
            self.losses.ended(instance, instance.ending)
        if found.resumed is not None:
            instance, segment, offset, n, prev = found.resumed
            self.tail.resume(instance, n, prev, segment.size - offset)
            self._backlog.current = instance
            self.refusal = None

    def begin(self) -> asyncio.Future[None]:
        """A new instance in a spare segment, first of all with what is to be declared. Records
        are taken once it is on disk: the future says so."""
        self._ordinal += 1
        name = self._entropy(16).hex()
        path = instance_directory(self._root, self._ordinal, name)
        instance = Instance(self._ordinal, name, self._source, path)
        declaration = self.losses.take()
        instance.gaps = len(declaration.records)
        self._backlog.add(instance)
        future = self.tail.begin(instance, declaration.records)
        future.add_done_callback(partial(self._declared, instance, declaration))
        return future

    def declare(self) -> None:
        """What was lost elsewhere, in the current instance, whose own chain is whole."""
        if not self.tail.spares and self.tail.room < _GAP_BYTES * len(self.losses):
            return
        declaration = self.losses.take()
        for record in declaration.records:
            self.tail.add((record,), denial=True)
        future = self.tail.durable()
        future.add_done_callback(partial(self._declared, self.tail.instance, declaration))

    def end(self, instance: Instance, reason: str, first: int, aside: str = "") -> None:
        """The instance takes no more records, and ships none from number `first` on."""
        current = instance is self._backlog.current
        if instance.ending is not None:
            self._end_earlier(instance, instance.ending, reason, first, aside)
            return
        written = self.tail.n if current else instance.end
        # The gap records that an instance begins with are no loss: they are declared again.
        lost = max(0, written - max(first, 0 if instance.end else instance.gaps))
        if instance.end or lost:
            self._lose(instance, Ending(reason, first, lost, aside))
        else:
            # It never began, and nobody heard of it.
            self._backlog.end(instance, Ending(reason, first, 0, declared=True))
        if current and self.refusal is None:
            if not self.tail.spares:
                self.refusal = _NO_ROOM
            else:
                self.begin()
        self._wake()

    def _end_earlier(
        self, instance: Instance, former: Ending, reason: str, first: int, aside: str
    ) -> None:
        """It had ended already, and less of it can be shipped than was known."""
        if first < former.first:
            lost = None if former.lost is None else former.lost + former.first - first
            self._lose(instance, Ending(reason, first, lost, aside or former.aside))
            self._wake()

    def _lose(self, instance: Instance, ending: Ending) -> None:
        name = instance.path.name
        log.error("spool instance `%s` ends at %d: %s", name, ending.first, ending.reason)
        self.losses.ended(instance, ending)
        self._backlog.end(instance, ending)
        self._note(instance)

    def _declared(
        self, instance: Instance, declaration: Declaration, future: asyncio.Future[None]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            self.losses.failed(declaration)
        else:
            # If we die before this is noted, the next start declares it once more.
            self.losses.kept(declaration)
            for ended, _ in declaration.endings:
                self._note(ended)
            if instance.ending is None and not self.closed:
                self.refusal = None
                self._trouble.over()
        self._wake()

    def _failed(self, instance: Instance, error: OSError) -> None:
        self.sync_failures += 1
        if instance.ending is not None:
            return
        self._trouble.is_(f"a write failed: {error}")
        if instance is self._backlog.current:
            self.refusal = self.refusal or _BAD_DISK
            self.tail.discard()
        self.end(instance, "a write to the disk failed", instance.end)

    def _crashed(self, error: BaseException) -> None:
        self.fault = error
        self.closed, self.refusal = True, "the spool's writer died"
        self.tail.discard()
        self._wake()

    def _note(self, instance: Instance) -> None:
        """Beside the instance, for the next start. On a bad disk it may fail: then the next start
        ships what it can read, and the gap record declared too much."""
        assert instance.ending is not None
        with contextlib.suppress(RuntimeError):  # closed meanwhile: the next start notes it
            noting = self._loop.run_in_executor(
                self._chores, write_ending, self._disk, instance.path, instance.ending
            )
            noting.add_done_callback(_report)


def _report(noting: asyncio.Future[None]) -> None:
    if not noting.cancelled() and noting.exception() is not None:
        log.warning("the end of a spool instance can't be noted: %s", noting.exception())
