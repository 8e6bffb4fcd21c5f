"""Starts a service as a fork of a process that has imported it, so that a start costs a tenth.

A new interpreter takes a second of CPU to import the control API, and the suite starts hundreds.
The fork runs `python -m MODULE` from its first line; only what the imports made is there already.
The process that forks has one thread and no event loop, and runs nothing but the imports.

A command that is anything else gets its own interpreter: another program, another module, another
tree, other variables than `SLUICE_…`. So does every command of the benchmarks, which measure starts
and memory: only `tests/conftest.py` turns this on.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "control_api": ("serve", "supervise", "purge"),
    "sidecar": ("__main__",),
}
"""The services that run as a fork, and those of their modules that import all others."""
LARGEST = 1 << 18
_on: list[bool] = []


class Fork:
    """The members of `subprocess.Popen` that tests use, for a process that is another's child."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self.pid = int(status.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(self._status.recv(64)))
            self._status.close()
        return self.returncode


Started = subprocess.Popen[bytes] | Fork


def turn_on() -> None:
    """Fork from now on, in this process."""
    _on[:] = [True]


def warm_up() -> None:
    """Start the processes that fork, which otherwise happens at the first need."""
    for module in MODULES:
        _server(module)


def start(
    command: Sequence[str],
    output: IO[Any],
    environ: Mapping[str, str],
    cwd: Path,
    before: Callable[[], None] | None = None,
    *,
    errors: IO[Any] | None = None,
) -> Started:
    """Run a command with `environ`, which writes to `output`, and its errors to `errors` if that is
    given. `before` runs in the new process."""
    errors = errors or output
    if _on and before is None and cwd == ROOT and _may_fork(command, environ):
        return _ask(command[2], command[3:], [output.fileno(), errors.fileno()], environ)
    return subprocess.Popen(
        command, env=environ, stdout=output, stderr=errors, cwd=cwd, preexec_fn=before
    )


def run(
    command: Sequence[str], environ: Mapping[str, str], seconds: float = 180, *, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run`: wait until the command has ended, and return what it wrote."""
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        process = start(command, output, environ, ROOT, errors=errors)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        for each in (output, errors):
            each.seek(0)
        done = subprocess.CompletedProcess(list(command), code, output.read(), errors.read())
    if check:
        done.check_returncode()
    return done


def _may_fork(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    changed = {name for name, _ in environ.items() ^ os.environ.items()}
    ours = all(name.startswith("SLUICE_") for name in changed)
    return ours and list(command[:2]) == [sys.executable, "-m"] and command[2] in MODULES


def _ask(
    module: str, arguments: Sequence[str], output: list[int], environ: Mapping[str, str]
) -> Fork:
    status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = json.dumps([list(arguments), dict(environ)]).encode()
    assert len(message) < LARGEST, "a command and its environment are too long to be passed on"
    with theirs:
        socket.send_fds(_server(module)[0], [message], [*output, theirs.fileno()])
    return Fork(status)


@functools.cache
def _server(module: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the connection to the process that forks, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    with theirs:
        command = [sys.executable, "-m", "tests.support.fork_server", module, str(theirs.fileno())]
        return ours, subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])


def _serve(module: str, asked: socket.socket) -> list[str]:
    """Fork for each message. Returns only in a fork, its arguments; ends with the connection."""
    for inner in MODULES[module]:
        importlib.import_module(f"{module}.{inner}")
    sys.modules.pop(f"{module}.__main__", None)  # runs anew in each fork
    gc.collect()
    gc.freeze()
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, "a fork would lose the other threads"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets each first fork by itself
    while True:
        message, passed, _, _ = socket.recv_fds(asked, LARGEST, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            asked.close()
            return _watched(json.loads(message), passed)
        for each in passed:
            os.close(each)


def _watched(message: tuple[list[str], dict[str, str]], passed: list[int]) -> list[str]:
    """Fork once more, tell how that ended, and end. Returns only in the second fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output, errors, status = passed
    child = os.fork()
    if child:
        os.write(status, str(child).encode())
        os.close(output)
        os.close(errors)
        os.write(status, str(os.waitpid(child, 0)[1]).encode())
        os._exit(0)
    os.close(status)
    for standard, given in ((1, output), (2, errors)):
        os.dup2(given, standard)
        os.close(given)
    arguments, environ = message
    os.environ.clear()
    os.environ.update(environ)
    return arguments


if __name__ == "__main__":
    name = sys.argv[1]
    with socket.socket(fileno=int(sys.argv[2])) as connection:
        rest = _serve(name, connection)
    sys.argv[1:] = rest
    runpy.run_module(name, run_name="__main__", alter_sys=True)
