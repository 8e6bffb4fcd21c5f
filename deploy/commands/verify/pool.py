"""Verifies chunks of lines in several processes, and yields the results in order. Also shows the
progress of a verification on a terminal.

The processes are forked, so that all of them hash ids with the same random key. Each process works
on one chunk at a time. `policies.trail.walk.range_walk` makes the actual checks.
"""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, TextIO

from policies.trail.verdict.outcome import Unusable
from policies.trail.walk.range_result import RangeResult
from policies.trail.walk.range_walk import RangeWalk


class WalkOptions(NamedTuple):
    """The options for verifying a chunk: whether entries must have their openings beside them, and
    the tree sizes at which the root hash is wanted. They are those of `RangeWalk`."""

    with_openings: bool
    wanted: frozenset[int]


class Walked(NamedTuple):
    """A chunk of lines, and the result of verifying it."""

    chunk: bytes
    result: RangeResult


class WorkerDied(Unusable):
    """a process that verified a part of the file ended by itself: it says nothing about the log"""


def walk_chunk(chunk: bytes, options: WalkOptions) -> RangeResult:
    walk = RangeWalk(with_openings=options.with_openings, wanted=options.wanted)
    walk.feed(chunk)
    return walk.result()


def walk_chunks(chunks: Iterable[bytes], options: WalkOptions, jobs: int) -> Iterator[Walked]:
    """Yield the result of verifying each chunk, in order. `jobs` processes work on them; with one
    job, this process does. Raises `WorkerDied`."""
    if jobs == 1:
        for chunk in chunks:
            yield Walked(chunk, walk_chunk(chunk, options))
        return
    with closing(_Pool(options, jobs)) as pool:
        yield from pool.walk(iter(chunks))


class _Pool:
    def __init__(self, options: WalkOptions, jobs: int) -> None:
        context = multiprocessing.get_context("fork")
        self._idle: list[Connection] = []
        self._busy: dict[Connection, tuple[int, bytes]] = {}
        self._processes = []
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            # A child holds copies of the earlier pipes' ends. It must close them, or a dead parent
            # would leave children that wait for one another.
            others = [*self._idle, ours]
            process = context.Process(target=_work, args=(theirs, others, options), daemon=True)
            process.start()
            theirs.close()
            self._idle.append(ours)
            self._processes.append(process)

    def walk(self, chunks: Iterator[bytes]) -> Iterator[Walked]:
        done: dict[int, Walked] = {}
        sent = given = 0
        # The next chunk is read while all workers are busy, so that none waits for it.
        chunk = next(chunks, None)
        while chunk is not None or self._busy or done:
            # No further ahead than there are workers: results wait in memory for their turn.
            while chunk is not None and self._idle and sent - given <= 2 * len(self._processes):
                worker = self._idle.pop()
                worker.send_bytes(chunk)
                self._busy[worker] = (sent, chunk)
                sent += 1
                chunk = next(chunks, None)
            for ready in wait(list(self._busy)) if self._busy else ():
                assert isinstance(ready, Connection)
                number, walked = self._busy.pop(ready)
                try:
                    done[number] = Walked(walked, ready.recv())
                except (EOFError, OSError) as error:
                    raise WorkerDied(
                        "a process that verified a part of the file died, perhaps for want of "
                        "memory: nothing is proven; try fewer --jobs"
                    ) from error
                self._idle.append(ready)
            while given in done:
                yield done.pop(given)
                given += 1

    def close(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        for process in self._processes:
            process.terminate()
            process.join()


def _work(pipe: Connection, others: list[Connection], options: WalkOptions) -> None:
    # Ctrl-C reaches every process of the terminal; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    while True:
        try:
            chunk = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send(walk_chunk(chunk, options))


EVERY = 0.25
"""The seconds between two updates of the progress line."""


class Progress:
    """Counts the bytes and entries that were read, and shows them on one line of a terminal.
    Without a terminal and a clock it only counts."""

    def __init__(
        self,
        total: int | None = None,
        monotonic: Callable[[], float] | None = None,
        out: TextIO | None = None,
    ) -> None:
        """Begin to count at 0. `total` is the number of bytes to come, None if unknown; `monotonic`
        is the clock, `out` the terminal."""
        self.entries = 0
        self._total = total
        self._monotonic = monotonic
        self._out = out
        self._done = 0
        self._started = self._last = 0.0 if monotonic is None else monotonic()
        self._shown = False

    def advance(self, count: int) -> None:
        """Add the number of bytes, or of rows, that were read, and update the line if it is time
        to."""
        self._done += count
        if self._monotonic is None or self._out is None:
            return
        now = self._monotonic()
        if now - self._last < EVERY:
            return
        self._last = now
        rate = self.entries / max(now - self._started, 0.001)
        done = f"{self._done / 2**20:,.0f} MiB"
        if self._total:
            done = f"{min(100 * self._done // self._total, 100)} %"
        # The escape sequence clears what a longer line left.
        self._out.write(f"\r{self.entries:,} entries, {done}, {rate:,.0f} entries/s\x1b[K")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        """Erase the progress line from the terminal."""
        if self._shown and self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._shown = False


def on_terminal(total: int | None, monotonic: Callable[[], float]) -> Progress:
    """Return a progress display on standard error if that is a terminal, else one that prints
    nothing."""
    if not sys.stderr.isatty():
        return Progress()
    return Progress(total, monotonic, sys.stderr)
