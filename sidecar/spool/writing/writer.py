"""Writes records to disk. Each job is one write and one sync; a thread does the jobs in order.

A lone request waits longer for the way to the thread and back than the disk's own time, so while
the disk is fast its job may be written without the thread (`write_at_once`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from sidecar.spool.instance import Instance, Segment
from sidecar.spool.storage.disk import Disk

FAST_SECONDS = 0.001
FAST_SYNCS = 16
"""The number of recent syncs that decide whether the disk is fast: it is if each of them took less
than `FAST_SECONDS`."""


class Start(NamedTuple):
    """The segment that a job opens, and the spare file of zeros that becomes it. The segment's
    header is at the start of the job's bytes."""

    segment: Segment
    spare: Path


@dataclass(slots=True, eq=False)
class WriteJob:
    """One write to disk: bytes for one segment of `instance`, the futures that wait for them, and
    (`end`) the number after the last record among them."""

    instance: Instance
    start: Start | None
    end: int
    frames: list[bytes] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    size: int = 0


class Writer:
    """Writes jobs to the current segment and syncs them. Calls `on_written(job, error)` on the
    event loop for each job, and `on_crashed(error)` if the thread itself dies, which is a bug and
    fatal."""

    def __init__(
        self,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float],
        on_written: Callable[[WriteJob, OSError | None], None],
        on_crashed: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._loop = loop
        self._monotonic = monotonic
        self._fast_syncs = 0
        self._on_written = on_written
        self._on_crashed = on_crashed
        self._jobs: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._file: int | None = None
        self._offset = 0
        self._abandoned: tuple[Instance, OSError] | None = None
        # A daemon thread: a disk that hangs must not keep the process from exiting.
        self._thread = Thread(target=self._run, name="spool-writer", daemon=True)
        self.submit = self._jobs.put
        """Queues a job for the thread, and returns at once."""

    def resume(self, path: Path, offset: int) -> None:
        """Continue in a recovered segment, from `offset` on. Call this before `start`."""
        self._file, self._offset = self._disk.open_to_write(path), offset

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Stop the thread after its queued jobs. Returns whether it stopped within `seconds`.
        Blocks."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def write_at_once(self, job: WriteJob) -> bool:
        """Write the job in the caller's thread and report it, if the disk is fast. Returns whether
        it was written. Call this only while every submitted job has been reported: the thread then
        touches nothing."""
        if self._fast_syncs < FAST_SYNCS:
            return False
        try:
            self._on_written(job, self._commit(job))
        except BaseException as error:  # noqa: BLE001  # ends the process, as in the thread
            self._on_crashed(error)
        return True

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._report(self._on_written, job, self._commit(job))
                del job  # free its records while waiting for the next
        except BaseException as error:  # noqa: BLE001  # reported to the loop, which ends the process
            self._report(self._on_crashed, error)
        finally:
            self._close()

    def _report(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _commit(self, job: WriteJob) -> OSError | None:
        # Its records chain to some that are not on disk, and an instance has no holes.
        if self._abandoned is not None and self._abandoned[0] is job.instance:
            return self._abandoned[1]
        try:
            if job.start is not None:
                self._begin(job.instance, job.start)
            self._append(job.frames)
        except OSError as error:
            # Never retried. After a failed sync the kernel may drop the dirty pages, and report
            # success for the next sync although nothing was written.
            self._abandoned = (job.instance, error)
            if job.start is not None:
                with contextlib.suppress(OSError):  # a spare from a bad disk is not reused
                    self._disk.remove(job.start.spare)
            return error
        return None

    def _append(self, frames: list[bytes]) -> None:
        if self._file is None:
            raise OSError("no segment is open")
        data = b"".join(frames)
        began = self._monotonic()
        self._disk.write(self._file, data, self._offset)
        # If we die here the frames may be on disk, in part or not at all. Nothing was acknowledged.
        self._disk.sync(self._file)
        # The frames are on disk. If we die here they ship after the restart; no answer was given.
        self._offset += len(data)
        fast = self._monotonic() - began < FAST_SECONDS
        self._fast_syncs = self._fast_syncs + 1 if fast else 0

    def _begin(self, instance: Instance, start: Start) -> None:
        """Turn a spare segment into the current segment. Recovery understands the directory after
        each step: a segment without a header is empty, and nothing in it was acknowledged."""
        segment = start.segment
        if segment.first == 0:
            self._disk.make_directory(instance.path)
        self._disk.rename(start.spare, segment.path)
        # Both directories: a rename between two is on disk only once each of them is. If we die
        # between the syncs, the segment may show up in both or in neither; it holds nothing yet.
        self._disk.sync_directory(instance.path)
        self._disk.sync_directory(start.spare.parent)
        self._close()
        self._file, self._offset = self._disk.open_to_write(segment.path), 0

    def _close(self) -> None:
        if self._file is not None:
            # All that was written is synced, or abandoned and reported: an error here is no news.
            with contextlib.suppress(OSError):
                self._disk.close(self._file)
            self._file = None
