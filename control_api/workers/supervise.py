"""The supervisor: binds the ports once, starts the workers, and starts those again that die.

    bind > worker 0, until it serves > the others > told > watch > drain

Worker 0 is alone at first, since a first start makes keys. Each worker has sockets of its own on
the shared port, which the supervisor holds too and never accepts from: a connection that comes
while a worker is dead waits for the one that follows.

No worker outlives the supervisor: should that be killed outright, the kernel sends them SIGTERM
(PR_SET_PDEATHSIG, on Linux) and they drain by themselves. Serves nothing and opens no database.
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
from control_api.security.secret_file import UnusableFile, make_directory
from control_api.settings import Settings
from control_api.sockets import bind
from control_api.workers.worker_args import WorkerArgs
from policies.ground.listen_address import ListenAddress

PAUSE = 0.05
QUICK_SECONDS = 5.0
"""A worker counts as one that ran once it has served for so long. How long it takes to start does
not matter: on a busy machine that may be longer than this."""
MOST_QUICK = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
DRAIN_SECONDS = 20.0
PR_SET_PDEATHSIG = 1
_log = logging.getLogger("sluice.workers")
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork
Monotonic = Callable[[], float]
Tell = Callable[[ListenAddress, ListenAddress | None], None]


class WorkersFailing(Exception):
    """a worker ends again and again, and hardly serves in between; its last words stand above"""


@dataclass(slots=True)
class _Slot:
    """A place for a worker, and who has it. `since` is when it began to serve, None before that;
    `quick` counts the ends in a row of workers that hardly served."""

    index: int
    api: list[socket.socket]
    metrics: list[socket.socket]
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    since: float | None = None
    due: float = 0.0
    quick: int = 0

    def sockets(self) -> list[socket.socket]:
        return [*self.api, *self.metrics]


@dataclass(slots=True)
class Supervisor:
    """The workers of one service. Use it in the main thread: the kernel's signal is tied to the
    thread that started a worker."""

    settings: Settings
    monotonic: Monotonic
    _slots: list[_Slot] = field(default_factory=list)
    _asked: bool = False

    def run(self, tell: Tell) -> int:
        """Until someone asks to stop: 0 where every worker drained. `tell` hears the addresses
        once all workers serve. A worker that can't start the first time ends it with its code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        make_directory(self.settings.data_dir)
        with _alone(self.settings.data_dir / DIRECTORY):
            # Before there are several: each would make one.
            log_key.open_or_make(self.settings.data_dir)
            self._bind()
            try:
                failed = self._start_all()
                if failed is None and not self._asked:
                    first = self._slots[0]
                    tell(_address(first.api), _address(first.metrics) if first.metrics else None)
                    self._watch()
            finally:
                drained = self._drain()
        return failed or (0 if drained else 1)

    def _bind(self) -> None:
        settings, count = self.settings, self.settings.workers
        api = bind(settings.control_listen, "SLUICE_CONTROL_LISTEN", count)
        own = settings.metrics_listen
        metrics = bind(own, "SLUICE_METRICS_LISTEN", count) if own else [[] for _ in api]
        self._slots = [_Slot(i, *pair) for i, pair in enumerate(zip(api, metrics, strict=True))]

    def _start_all(self) -> int | None:
        """The exit code of a worker that could not start; None where all serve, or all are to
        stop."""
        for wave in (self._slots[:1], self._slots[1:]):
            for slot in wave:
                self._start(slot)
            while not self._asked and not all(slot.since is not None for slot in wave):
                self._wait()
                for slot in self._slots:
                    self._hear(slot)
                    code = None if slot.process is None else slot.process.poll()
                    if code is not None:
                        return code if code > 0 else 1
        return None

    def _watch(self) -> None:
        while not self._asked:
            self._wait()
            for slot in self._slots:
                self._hear(slot)
                if slot.process is not None and slot.process.poll() is not None:
                    self._ended(slot)
                elif slot.process is None and self.monotonic() >= slot.due and not self._asked:
                    self._start(slot)

    def _ended(self, slot: _Slot) -> None:
        assert slot.process is not None
        now, code = self.monotonic(), slot.process.returncode
        how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        _log.error("worker %d ended %s", slot.index, how)
        ran = slot.since is not None and now - slot.since >= QUICK_SECONDS
        slot.process, slot.since = None, None
        slot.quick = 0 if ran else slot.quick + 1
        if slot.quick >= MOST_QUICK:
            raise WorkersFailing(
                f"worker {slot.index} ended {MOST_QUICK} times in a row before it had served for "
                f"{QUICK_SECONDS:.0f} s: its last words stand above"
            )
        slot.due = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**slot.quick)

    def _start(self, slot: _Slot) -> None:
        self._forget_pipe(slot)
        slot.pipe, ready = os.pipe()
        os.set_blocking(slot.pipe, False)
        api = tuple(each.fileno() for each in slot.api)
        metrics = tuple(each.fileno() for each in slot.metrics)
        place = WorkerArgs(slot.index, len(self._slots), api, metrics, ready)
        safe = ["-P"] if sys.flags.safe_path else []
        supervisor = os.getpid()
        try:
            slot.process = subprocess.Popen(  # noqa: S603  # ourselves
                [sys.executable, *safe, "-m", "control_api", "worker", place.to_argument()],
                stdin=subprocess.DEVNULL,
                pass_fds=(*api, *metrics, ready),
                preexec_fn=lambda: _die_with(supervisor),  # noqa: PLW1509  # there are no threads
            )
        finally:
            os.close(ready)

    def _hear(self, slot: _Slot) -> None:
        """Note whether it serves by now."""
        if slot.pipe < 0:
            return
        try:
            said = os.read(slot.pipe, 1)
        except BlockingIOError:
            return
        slot.since = self.monotonic() if said else None
        self._forget_pipe(slot)

    def _forget_pipe(self, slot: _Slot) -> None:
        if slot.pipe >= 0:
            os.close(slot.pipe)
            slot.pipe = -1

    def _drain(self) -> bool:
        """Stop them all; whether each had answered what was under way. The ports are closed here
        first: once a worker has accepted what waits for it, nobody can come to wait."""
        for each in (sock for slot in self._slots for sock in slot.sockets()):
            each.close()
        running = [slot.process for slot in self._slots if slot.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)  # does nothing to one that has ended
        deadline = self.monotonic() + DRAIN_SECONDS
        while any(process.poll() is None for process in running):
            if self.monotonic() > deadline:
                for process in running:
                    process.kill()
            self._wait()
        for slot in self._slots:
            self._forget_pipe(slot)
        # One that had not begun to listen for signals has nothing to drain.
        return all(process.returncode in (0, -signal.SIGTERM) for process in running)

    def _wait(self) -> None:
        select.select([slot.pipe for slot in self._slots if slot.pipe >= 0], [], [], PAUSE)

    def _note(self, _: int, __: FrameType | None) -> None:
        self._asked = True


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The folder of the workers' sockets, of one supervisor at a time."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UnusableFile(f"`{path}`: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UnusableFile(
            f"`{path}`: another control API with workers uses this data directory"
        ) from None
    finally:
        os.close(handle)


def _address(sockets: list[socket.socket]) -> ListenAddress:
    return ListenAddress(*sockets[0].getsockname()[:2])


def _die_with(supervisor: int) -> None:
    """In the worker, before it becomes its program."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            # The supervisor was gone before the kernel was told: no signal will come.
            os._exit(1)
