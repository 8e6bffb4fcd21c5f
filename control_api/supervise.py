"""Supervises worker processes: binds the ports, starts the workers, restarts those that die, and
tells systemd when they serve.

bind > worker 0, until it serves > the others > announce > watch > drain
"""

import ctypes
import fcntl
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from control_api.log import log_key
from control_api.metrics.peer_metrics import DIRECTORY
from control_api.settings import Settings
from control_api.this_program import this_program
from control_api.worker_args import WorkerArgs
from policies.ground.addresses import ListenAddress
from policies.ground.errors import worded
from policies.ground.process.secret_file import UnusableFile, make_directory
from policies.ground.process.sockets import bind, bound

POLL_SECONDS = 0.05
# A worker that served for less than this failed early. The time that it took to start does not
# count, since a busy machine takes longer.
STABLE_SECONDS = 5.0
MAX_EARLY_FAILURES = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""The shortest and the longest pause before a restart, in seconds. Each early failure doubles the
pause."""
DRAIN_SECONDS = 20.0
"""The seconds that workers have to drain before they are killed."""
PR_SET_PDEATHSIG = 1
_log = logging.getLogger("sluice.workers")
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork
Monotonic = Callable[[], float]
Announce = Callable[[ListenAddress, ListenAddress | None], None]


class WorkersFailing(Exception):
    """a worker keeps ending soon after it starts; its own log lines say why"""


@dataclass(slots=True)
class _Slot:
    """The place of one worker, with its sockets and its current process. `since` is the time when
    the process began to serve, or None before that; `due` is the time to restart it. A stable run
    resets `early_failures` to 0."""

    index: int
    api: list[socket.socket]
    metrics: list[socket.socket]
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    since: float | None = None
    due: float = 0.0
    early_failures: int = 0

    def sockets(self) -> list[socket.socket]:
        return [*self.api, *self.metrics]


@dataclass(slots=True)
class Supervisor:
    """Runs the worker processes of one service. Use it in the main thread: the kernel ties
    PR_SET_PDEATHSIG to the thread that started the worker."""

    settings: Settings
    monotonic: Monotonic
    _slots: list[_Slot] = field(default_factory=list)
    _stopping: bool = False

    def run(self, announce: Announce) -> int:
        """Run until SIGTERM or SIGINT, and return the exit code, which is 0 if every worker
        drained. Call `announce` with the addresses once all workers serve. If a worker can't start
        the first time, stop all and return that worker's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        make_directory(self.settings.data_dir)
        with _locked(self.settings.data_dir / DIRECTORY):
            # Create the key before the workers start: otherwise each would create its own.
            log_key.open_or_make(self.settings.data_dir, self.settings.keys_dir)
            self._bind()
            try:
                failed = self._start_all()
                if failed is None and not self._stopping:
                    first, own = self._slots[0], self.settings.metrics_listen
                    metrics = bound(own, first.metrics) if own else None
                    announce(bound(self.settings.control_listen, first.api), metrics)
                    self._watch()
            finally:
                drained = self._drain()
        return failed or (0 if drained else 1)

    def _bind(self) -> None:
        settings, count = self.settings, self.settings.workers
        api = bind(settings.control_listen, "SLUICE_CONTROL_LISTEN", count)
        own = settings.metrics_listen
        metrics = bind(own, "SLUICE_METRICS_LISTEN", count) if own else [[] for _ in api]
        # Each worker has its own sockets on the shared port. They stay open here, though nothing is
        # accepted from them: a connection that arrives while a worker is dead waits for its
        # successor.
        self._slots = [_Slot(i, *pair) for i, pair in enumerate(zip(api, metrics, strict=True))]

    def _start_all(self) -> int | None:
        """Start all workers and wait until they serve. Return the exit code of a worker that can't
        start; None if all serve, or on a stop."""
        # Worker 0 starts alone: a first start creates keys, and two would create different ones.
        for wave in (self._slots[:1], self._slots[1:]):
            for slot in wave:
                self._start(slot)
            while not self._stopping and not all(slot.since is not None for slot in wave):
                self._wait()
                for slot in self._slots:
                    self._check_ready(slot)
                    code = None if slot.process is None else slot.process.poll()
                    if code is not None:
                        return code if code > 0 else 1  # negative: a signal ended it
        return None

    def _watch(self) -> None:
        while not self._stopping:
            self._wait()
            for slot in self._slots:
                self._check_ready(slot)
                if slot.process is not None and slot.process.poll() is not None:
                    self._ended(slot)
                elif slot.process is None and self.monotonic() >= slot.due and not self._stopping:
                    self._start(slot)

    def _ended(self, slot: _Slot) -> None:
        assert slot.process is not None
        now, code = self.monotonic(), slot.process.returncode
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        _log.error("worker %d ended %s", slot.index, how)
        was_stable = slot.since is not None and now - slot.since >= STABLE_SECONDS
        slot.process, slot.since = None, None
        slot.early_failures = 0 if was_stable else slot.early_failures + 1
        if slot.early_failures >= MAX_EARLY_FAILURES:
            raise WorkersFailing(
                f"worker {slot.index} ended {MAX_EARLY_FAILURES} times in a row before it had "
                f"served for {STABLE_SECONDS:.0f} s; its last log lines above say why"
            )
        slot.due = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**slot.early_failures)

    def _start(self, slot: _Slot) -> None:
        self._close_pipe(slot)
        slot.pipe, ready = os.pipe()
        # Reads must not block the loop that watches all workers.
        os.set_blocking(slot.pipe, False)
        api = tuple(each.fileno() for each in slot.api)
        metrics = tuple(each.fileno() for each in slot.metrics)
        worker = WorkerArgs(slot.index, len(self._slots), api, metrics, ready)
        supervisor = os.getpid()
        try:
            slot.process = subprocess.Popen(  # noqa: S603  # this program
                [*this_program(), "worker", worker.to_argument()],
                stdin=subprocess.DEVNULL,
                pass_fds=(*api, *metrics, ready),
                preexec_fn=lambda: _die_with(supervisor),  # noqa: PLW1509  # there are no threads
            )
        finally:
            # Now only the worker holds this end, so its death is the end of the file.
            os.close(ready)

    def _check_ready(self, slot: _Slot) -> None:
        """Record the time when the worker begins to serve, which it tells by writing a byte to its
        pipe."""
        if slot.pipe < 0:
            return
        try:
            ready = os.read(slot.pipe, 1)
        except BlockingIOError:
            return
        # End of file instead of a byte: the worker died before it served.
        slot.since = self.monotonic() if ready else None
        self._close_pipe(slot)

    def _close_pipe(self, slot: _Slot) -> None:
        if slot.pipe >= 0:
            os.close(slot.pipe)
            slot.pipe = -1

    def _drain(self) -> bool:
        """Stop all workers. Return True if each one answered its requests under way."""
        # Close our copies of the sockets first: otherwise a connection could still arrive after a
        # worker has accepted those that waited and closed its own, and would wait in vain.
        for each in (sock for slot in self._slots for sock in slot.sockets()):
            each.close()
        running = [slot.process for slot in self._slots if slot.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)  # has no effect on one that has ended
        deadline = self.monotonic() + DRAIN_SECONDS
        while any(process.poll() is None for process in running):
            if self.monotonic() > deadline:
                for process in running:
                    process.kill()
            self._wait()
        for slot in self._slots:
            self._close_pipe(slot)
        # SIGTERM ends a worker that has no signal handler yet; it has nothing to drain.
        return all(process.returncode in (0, -signal.SIGTERM) for process in running)

    def _wait(self) -> None:
        select.select([slot.pipe for slot in self._slots if slot.pipe >= 0], [], [], POLL_SECONDS)

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._stopping = True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Create the directory of the workers' sockets, and lock it against a second supervisor while
    the context lasts."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UnusableFile(f"`{path}`: {worded(error)}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UnusableFile(
            f"`{path}`: another control API with workers is using this data directory"
        ) from None
    finally:
        os.close(handle)


def _die_with(supervisor: int) -> None:
    """Make the new process end with its supervisor. Runs in it before it executes the worker: if
    the supervisor is killed, the kernel sends SIGTERM, and the worker drains by itself."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            # The supervisor died before the call above, so no signal will come.
            os._exit(1)
