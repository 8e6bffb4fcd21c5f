"""The children of `sluice up`: started, watched and stopped. Knows nothing of what they do.

Each has a session of its own, so the terminal's Ctrl-C reaches the launcher alone and the children
are stopped in order. None outlives the launcher: should it be killed outright, the kernel sends
them SIGTERM (PR_SET_PDEATHSIG, on Linux) and they drain by themselves.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from deploy.local.log_tail import LogTail, readable

PR_SET_PDEATHSIG = 1
PAUSE = 0.05
LAST_LINES = 20
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork


class StopAsked(Exception):
    """someone typed Ctrl-C, or sent SIGTERM"""


class ProcessFailed(Exception):
    """a child ended, or did not become ready in time; with its last lines"""


@dataclass(frozen=True, slots=True)
class Child:
    """One process, its log, and how long it may take to drain."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    tail: LogTail
    drain_seconds: float


class Family:
    """The children, in the order they were started; leaving the block stops them, last one first.

    Use it in the main thread: the kernel's signal is tied to the thread that started a child.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._children: list[Child] = []
        self._asked: list[int] = []
        self.undrained: list[str] = []
        """Who had to be killed."""

    def __enter__(self) -> Family:
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` means what it says
            signal.signal(signal.SIGHUP, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            self._stop(child)

    def start(
        self,
        name: str,
        command: list[str],
        environ: Mapping[str, str],
        drain_seconds: float,
        *,
        secretive: bool = False,
    ) -> None:
        """Starts a child that writes to `<logs>/<name>.log`; the run before keeps its own.

        `secretive`: what it says on standard output is secret, and goes nowhere.
        """
        log = self.logs / f"{name.replace(' ', '-')}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        launcher = os.getpid()
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)) as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if secretive else output,
                stderr=output,
                env=dict(environ),
                start_new_session=True,
                preexec_fn=lambda: _die_with(launcher),
            )
        self._children.append(Child(name, process, log, LogTail(name, log), drain_seconds))

    def wait(self, until: Callable[[], bool], what: str, seconds: float) -> None:
        """Returns when `until()`; `StopAsked` on a signal, `ProcessFailed` if a child ends or it
        lasts."""
        deadline = time.monotonic() + seconds
        while not until():
            self._look()
            if time.monotonic() > deadline:
                newest = self._children[-1]
                raise ProcessFailed(
                    f"{what}: not within {seconds:.0f} s\n{_last_lines(newest.log)}"
                )
            time.sleep(PAUSE)

    def watch(self) -> None:
        """Until someone asks to stop (`StopAsked`) or a child ends (`ProcessFailed`)."""
        while True:
            self._look()
            time.sleep(PAUSE)

    def ended(self) -> str | None:
        """What to say of the first child that has ended, or nothing."""
        for child in self._children:
            if (code := child.process.poll()) is not None:
                how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
                return f"the {child.name} ended {how}\n{_last_lines(child.log)}"
        return None

    def _look(self) -> None:
        self._pass_on()
        if self._asked:
            raise StopAsked
        if problem := self.ended():
            raise ProcessFailed(problem)

    def _pass_on(self) -> None:
        """Warnings and errors of the children, to the terminal."""
        for child in self._children:
            for line in child.tail.news():
                print(line, file=sys.stderr, flush=True)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._asked.append(number)

    def _stop(self, child: Child) -> None:
        """Asks, waits until it has drained, and kills it if not; a second Ctrl-C kills at once."""
        child.process.send_signal(signal.SIGTERM)  # does nothing to one that has ended
        deadline = time.monotonic() + child.drain_seconds
        while child.process.poll() is None:
            if time.monotonic() > deadline or len(self._asked) > 1:
                os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
                self.undrained.append(child.name)
            time.sleep(PAUSE)
            self._pass_on()


def _die_with(launcher: int) -> None:
    """In the child, before it becomes its program."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != launcher:
            # The launcher was gone before the kernel was told: no signal will come.
            os._exit(1)


def _last_lines(log: Path) -> str:
    written = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    lines = [line for each in written for line in readable(each)]
    return "\n".join([f"the last lines of {log}:", *(f"    {line}" for line in lines)])
