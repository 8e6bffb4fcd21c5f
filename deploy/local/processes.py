"""Starts, watches and stops the child processes of `sluice up`, and shows the warnings and errors
in their logs on the terminal.

Each child has its own session, so that Ctrl-C in the terminal reaches only the launcher, which
stops the children in order. No child outlives the launcher: if the launcher is killed, the kernel
sends the children SIGTERM (PR_SET_PDEATHSIG, on Linux) and they drain by themselves.

The services write one entry per line, as JSON or, with `SLUICE_LOG_FORMAT=text`, as text
(`control_api/README.md`, "Log"). Lines in other forms, such as those of the sample data source, are
not shown.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

LEVELS = ("warning", "error", "critical")
READ_BYTES = 64 * 1024
"""The most bytes read at a time: a child that floods its log must not delay watching the others."""
MAX_LINE = 1024 * 1024
_TEXT = re.compile(r"\S+Z (?P<level>[A-Z]+) \S+: (?P<message>.*)")
# Characters that could move the cursor or end the line. A JSON log escapes them; decoding it
# restores them, so they are escaped again before printing.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class LogTail:
    """Reads a child's log from where the last call stopped. `name` is the child's name."""

    def __init__(self, name: str, log: Path) -> None:
        self._name = name
        self._log = log
        self._offset = 0
        self._rest = b""

    def read_new(self) -> list[str]:
        """Return the warnings and errors among the lines written since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            read = log.read(READ_BYTES)
        # A line may be written in parts: the text after the last line break waits for the rest.
        self._offset += len(read)
        *lines, self._rest = (self._rest + read).split(b"\n")
        if len(self._rest) > MAX_LINE:
            self._rest = b""  # no entry is that long; keeping it could fill the memory
        shown = (_shown(self._name, line.decode(errors="replace")) for line in lines)
        return [line for line in shown if line is not None]


def readable(line: str) -> list[str]:
    """Return a line of a child's log as lines for people: a JSON entry becomes its level and
    message, followed by its traceback; any other line stays as it is."""
    level, message = _entry(line)
    if not level or _TEXT.fullmatch(line):
        return [line]  # readable as it is
    trace = str(json.loads(line).get("error", "")).splitlines()
    return [f"{level}: {_safe(message)}", *(f"    | {_safe(each)}" for each in trace)]


def _shown(name: str, line: str) -> str | None:
    level, message = _entry(line)
    return f"{name}: {level}: {_safe(message)}" if level in LEVELS else None


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def _entry(line: str) -> tuple[str, str]:
    """Return the level and message of a log line; two empty strings if the line is not an entry of
    a service."""
    if match := _TEXT.fullmatch(line):
        return match["level"].lower(), match["message"]
    try:
        entry = json.loads(line)
    except ValueError:
        return "", ""
    if not isinstance(entry, dict):
        return "", ""
    return str(entry.get("level", "")), str(entry.get("message", ""))


PR_SET_PDEATHSIG = 1
PAUSE = 0.05
LAST_LINES = 20
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork


class StopRequested(Exception):
    """Ctrl-C or SIGTERM"""


class ProcessFailed(Exception):
    """a child ended, or was not ready in time; the message has the last lines of its log"""


@dataclass(frozen=True, slots=True)
class Child:
    """A child process of the launcher. `drain_seconds` is the time that it gets to finish after
    SIGTERM."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    tail: LogTail
    drain_seconds: float


class ChildProcesses:
    """The launcher's child processes, in the order in which they were started. Leaving the `with`
    block stops them in reverse order.

    Use it in the main thread: PR_SET_PDEATHSIG is tied to the thread that started a child.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._children: list[Child] = []
        self._signals: list[int] = []
        self.killed: list[str] = []
        """The names of the children that were killed because they did not drain in time."""

    def __enter__(self) -> ChildProcesses:
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # respect `nohup`
            signal.signal(signal.SIGHUP, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        # In reverse order, so that the services that a child depends on still run while it drains.
        for child in reversed(self._children):
            self._stop(child)

    def start(
        self,
        name: str,
        command: list[str],
        environ: Mapping[str, str],
        drain_seconds: float,
        *,
        discard_output: bool = False,
    ) -> None:
        """Start a child that writes its output to `<logs>/<name>.log`. The log of the run before is
        kept as `.log.1`.

        `discard_output` drops the child's standard output, which may contain secrets.
        """
        log = self.logs / f"{name.replace(' ', '-')}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.1"))  # one earlier run is enough to compare with
        launcher = os.getpid()
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)) as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if discard_output else output,
                stderr=output,
                env=dict(environ),
                start_new_session=True,  # Ctrl-C in the terminal reaches only the launcher
                preexec_fn=lambda: die_with(launcher),
            )
        self._children.append(Child(name, process, log, LogTail(name, log), drain_seconds))

    def pid(self, name: str) -> int:
        """Return the process id of the child `name`, which is also the id of its session."""
        (pid,) = (child.process.pid for child in self._children if child.name == name)
        return pid

    def wait_ready(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready()` returns true. Raises `StopRequested` on a signal, and
        `ProcessFailed` if any child ends or if `seconds` pass; in the latter case the message shows
        the log of the child `name`."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._poll()
            if time.monotonic() > deadline:
                (log,) = (child.log for child in self._children if child.name == name)
                raise ProcessFailed(
                    f"the {name} was not ready within {seconds:.0f} s\n{_last_lines(log)}"
                )
            time.sleep(PAUSE)

    def watch(self) -> None:
        """Watch the children until a signal arrives or one of them ends. Raises `StopRequested` or
        `ProcessFailed`; never returns."""
        while True:
            self._poll()
            time.sleep(PAUSE)

    def ended(self) -> str | None:
        """Return a message about the first child that has ended, with the last lines of its log;
        None while all children run."""
        # The first in order of start: the others may have ended because of it.
        for child in self._children:
            if (code := child.process.poll()) is not None:
                how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
                return f"the {child.name} ended {how}\n{_last_lines(child.log)}"
        return None

    def ended_names(self) -> list[str]:
        """Return the names of the children that have ended."""
        return [child.name for child in self._children if child.process.poll() is not None]

    def _poll(self) -> None:
        self._print_new_lines()
        if self._signals:
            raise StopRequested
        if problem := self.ended():
            raise ProcessFailed(problem)

    def _print_new_lines(self) -> None:
        """Print the children's warnings and errors since the last call."""
        for child in self._children:
            for line in child.tail.read_new():
                print(line, file=sys.stderr, flush=True)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        # Only note the signal: an exception here could interrupt `start` after a child began and
        # before the child is in the list, and nothing would ever stop it.
        self._signals.append(number)

    def _stop(self, child: Child) -> None:
        """Send the child SIGTERM, wait for it to drain, and kill it if that takes too long. A
        second Ctrl-C kills it at once."""
        child.process.send_signal(signal.SIGTERM)  # no effect if it has ended
        deadline = time.monotonic() + child.drain_seconds
        while child.process.poll() is None:
            if time.monotonic() > deadline or len(self._signals) > 1:
                # The group: a child may have processes of its own (`SLUICE_WORKERS`).
                os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
                self.killed.append(child.name)
            time.sleep(PAUSE)
            self._print_new_lines()


def die_with(launcher: int) -> None:
    """Ask the kernel to send this process SIGTERM when the launcher dies. Runs in the child before
    `exec`."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != launcher:
            # The launcher died before `prctl`, so no signal will come.
            os._exit(1)


def _last_lines(log: Path) -> str:
    written = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    lines = [line for each in written for line in readable(each)]
    return "\n".join([f"the last lines of `{log}`:", *(f"    {line}" for line in lines)])
