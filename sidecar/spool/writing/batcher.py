"""Gathers write jobs into batches, and decides when a batch goes to the writer.

Jobs gather while the writer syncs the previous batch: under load one sync serves many records,
otherwise one. Knows nothing of what a job holds, except whether it holds anything.
"""

import asyncio
from collections.abc import Callable

from sidecar.spool.writing.writer import WriteJob

MAX_TURNS = 64
"""Turns of the event loop for which a batch may keep growing, as long as each turn adds records. A
sync costs more than a record: under load one sync serves many; a lone record waits one turn."""

LAZY_SECONDS = 0.02
"""The seconds that a record that is not urgent may wait for an urgent one."""


class Batcher:
    """Set `submit` before use: it hands a job to the writer; and `write_at_once`, which returns
    whether it has written the job and called `written`. Records go into `current`, the last job of
    the batch."""

    submit: Callable[[WriteJob], None]
    write_at_once: Callable[[WriteJob], bool]
    current: WriteJob

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._batch: list[WriteJob] = []
        self._in_flight = 0
        self._grown = 0
        self._scheduled = False
        self._urgent = False
        self._lazy_timer: asyncio.TimerHandle | None = None

    def open(self, job: WriteJob) -> None:
        """Add a job, which is the current one from now on."""
        self.current = job
        self._batch.append(job)

    def grow(self, *, urgent: bool) -> None:
        """Note that the current job has grown. Unless `urgent`, it may wait for more."""
        self._grown += 1
        self._urgent = self._urgent or urgent
        # Otherwise the batch goes when its turn of the loop comes or the previous batch is synced.
        if not self._scheduled and not self._in_flight:
            self.schedule()

    def written(self) -> None:
        """Note that the writer has finished a job, successfully or not."""
        self._in_flight -= 1
        if not self._in_flight:
            self.schedule()

    def discard(self) -> list[WriteJob]:
        """Drop what was gathered, and return it."""
        dropped, self._batch = self._batch, []
        return dropped

    def schedule(self) -> None:
        """Have the batch submitted: soon if any of it is urgent, otherwise a moment later."""
        if self._urgent:
            # Not at once: other work that is ready on the loop may join this batch.
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._coalesce, self._grown, MAX_TURNS)
        elif self._lazy_timer is None and any(job.frames for job in self._batch):
            # A sync costs more than a record: a record that is not urgent is no reason for one.
            self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._on_lazy_timer)

    def _on_lazy_timer(self) -> None:
        self._lazy_timer = None
        self._urgent = True
        if not self._in_flight:
            self.schedule()

    def _coalesce(self, before: int, turns: int) -> None:
        """Submit the batch once a turn of the loop adds no further record."""
        # Bounded: under constant load every turn adds a record, and all would wait forever.
        if turns and self._grown > before:
            self._loop.call_soon(self._coalesce, self._grown, turns - 1)
        else:
            self._submit_batch()

    def _submit_batch(self) -> None:
        self._scheduled = False
        # Only one batch at a time, or nothing would gather. `written` schedules this one again.
        if self._in_flight:
            return
        batch, self._batch, self._urgent = self._batch, [], False
        if batch:
            self.open(WriteJob(self.current.instance, None, self.current.end))
        jobs = [job for job in batch if job.frames]
        self._in_flight = len(jobs)
        # With several waiting, other requests go on while the writer's thread waits for the disk. A
        # new segment takes more than one sync.
        lone = len(jobs) == 1 and len(jobs[0].waiters) == 1 and jobs[0].start is None
        if not (lone and self.write_at_once(jobs[0])):
            for job in jobs:
                self.submit(job)
