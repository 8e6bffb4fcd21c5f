"""The thread that writes: one job is one write and one sync. Knows no records and no modes.

Jobs come in order from the event loop and are answered in order. The thread's work between two
jobs is a few microseconds, so that it seldom has to wait for the interpreter's lock.

A failed write or sync abandons the file: after one the kernel may drop the pages and call the next
sync good although nothing was written, so it is never tried again. Every later job of the same
instance fails at once.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from sidecar.spool.disk import Disk
from sidecar.spool.instance import Instance, Segment


class Start(NamedTuple):
    """The segment that a job begins with, and the file of zeros that becomes it. The header is the
    first of the job's bytes."""

    segment: Segment
    spare: Path


@dataclass(slots=True, eq=False)
class WriteJob:
    """Bytes for one segment of `instance`, who waits for them, and the number after the last
    record among them."""

    instance: Instance
    start: Start | None
    end: int
    frames: list[bytes] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    size: int = 0


class Writer:
    """`settled(job, error)` is called on the loop for each job; `crashed(error)` where the thread
    itself died, which is a bug and fatal."""

    def __init__(
        self,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
        settled: Callable[[WriteJob, OSError | None], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._loop = loop
        self._settled = settled
        self._crashed = crashed
        self._jobs: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._file: int | None = None
        self._offset = 0
        self._abandoned: tuple[Instance, OSError] | None = None
        # A daemon: a disk that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name="spool-writer", daemon=True)
        self.submit = self._jobs.put
        """Queue a job; returns at once."""

    def resume(self, path: Path, offset: int) -> None:
        """Before `start`: go on in a segment that was recovered."""
        self._file, self._offset = self._disk.open_to_write(path), offset

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """End the thread after the jobs it has; whether it ended within `seconds`. Blocks."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._tell(self._settled, job, self._commit(job))
                del job  # its records are not kept while we wait for the next
        except BaseException as error:  # noqa: BLE001  # told to the loop, which ends the process
            self._tell(self._crashed, error)
        finally:
            self._close()

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(what, *arguments)

    def _commit(self, job: WriteJob) -> OSError | None:
        if self._abandoned is not None and self._abandoned[0] is job.instance:
            return self._abandoned[1]
        try:
            if job.start is not None:
                self._begin(job.instance, job.start)
            self._append(job.frames)
        except OSError as error:
            self._abandoned = (job.instance, error)
            if job.start is not None:
                with contextlib.suppress(OSError):  # a spare of a bad disk is not used again
                    self._disk.remove(job.start.spare)
            return error
        return None

    def _append(self, frames: list[bytes]) -> None:
        if self._file is None:
            raise OSError("no segment is open")
        data = b"".join(frames)
        self._disk.write(self._file, data, self._offset)
        # If we die here the frames may be there, in part, or not. Nobody was told that they are.
        self._disk.sync(self._file)
        # They are on disk. If we die here they ship after the restart; no answer was given.
        self._offset += len(data)

    def _begin(self, instance: Instance, start: Start) -> None:
        """Each step leaves a directory that recovery understands: without a header a segment is
        empty, and nothing in it was acknowledged."""
        segment = start.segment
        if segment.first == 0:
            self._disk.make_directory(instance.path)
        self._disk.rename(start.spare, segment.path)
        self._disk.sync_directory(instance.path)
        self._disk.sync_directory(start.spare.parent)
        self._close()
        self._file, self._offset = self._disk.open_to_write(segment.path), 0

    def _close(self) -> None:
        if self._file is not None:
            # What was written is synced, or was abandoned and reported: nothing new to learn.
            with contextlib.suppress(OSError):
                self._disk.close(self._file)
            self._file = None
