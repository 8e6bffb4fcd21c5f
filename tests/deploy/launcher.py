"""Runs `sluice` as a user does, on free ports and in its own folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
SLUICE = [sys.executable, "-m", "deploy.command"]
ANYWHERE = [
    option
    for name in ("control", "sidecar", "source", "chroma")
    for option in (f"--{name}-listen", "127.0.0.1:0")
]
LONGEST = 3 * PATIENCE
"""Seconds for what starts or ends all services: a start takes six seconds of CPU."""


def environ(**more: str) -> dict[str, str]:
    """The environment without a developer's own settings, with this working tree importable."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return clean | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | more


def sluice(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [*SLUICE, *arguments],
        cwd=ROOT,
        env=environ(**more),
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


class Launcher:
    """A running `sluice up`."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def printed(self) -> str:
        return self._output.read_text()

    def until_printed(self, text: str) -> None:
        """Return once `text` is printed."""
        until(
            f"`{text}` is printed",
            lambda: text in self.printed or self.process.poll() is not None,
            seconds=LONGEST,
        )
        assert text in self.printed, self.printed

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def command(self, comment: str) -> str:
        """The command to paste below `# <comment>…`."""
        found = re.search(rf"^# {comment}.*\n(.+)$", self.printed, re.MULTILINE)
        assert found, self.printed
        return found[1]

    def key(self, name: str) -> str:
        """The agent's key, from where the printed text says it is."""
        found = re.search(rf"^ +{name} key +in (.+?)(?:   |$)", self.printed, re.MULTILINE)
        assert found, self.printed
        text = Path(found[1]).read_text()
        if name == "agent":
            return text
        key: str = json.loads(text)[f"{name}_key"]
        return key

    def interrupt(self) -> int:
        """Sends Ctrl-C and returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LONGEST)


@contextmanager
def up(
    data_dir: Path,
    *arguments: str,
    listen: Sequence[str] = tuple(ANYWHERE),
    program: Sequence[str] = tuple(SLUICE),
    cwd: Path | str = ROOT,
    **more: str,
) -> Iterator[Launcher]:
    """A started launcher. Whatever remains of it at the end is killed."""
    output = data_dir.with_name(f"{data_dir.name}-{time.monotonic_ns()}.out")
    command = [*program, "up", "--data-dir", str(data_dir), *listen, *arguments]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=cwd, env=environ(**more), stdout=file, stderr=file, start_new_session=True
        )
    launcher = Launcher(process, output)
    seen: list[psutil.Process] = []
    try:
        yield launcher
        if process.poll() is None:
            seen = launcher.children()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for child in seen:
            if child.is_running():
                child.kill()


def gone(processes: list[psutil.Process]) -> bool:
    """Whether all of them end in time."""
    return not psutil.wait_procs(processes, timeout=LONGEST)[1]


def paste(command: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as in another terminal, in the same folder."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env=environ(**more),
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
