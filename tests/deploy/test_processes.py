"""How the launcher watches and stops its children, and what it says when one does not get ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.architecture.tree import ROOT
from tests.deploy.launcher import gone
from tests.support.waiting import until

LAUNCHER = """
import sys
from pathlib import Path
from deploy.local.processes import ChildProcesses, ProcessFailed

def child(text):
    return [sys.executable, "-c", f"import time; print({text!r}, flush=True); time.sleep(60)"]

with ChildProcesses(Path(sys.argv[1])) as children:
    children.start("slow", child("the disk is full"), {}, 1)
    children.start("other", child("all is well"), {}, 1)
    try:
        children.wait_ready("slow", lambda: False, 2)
    except ProcessFailed as error:
        print(error)
"""


def test_a_child_that_is_not_ready_in_time_is_quoted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "the slow was not ready within 2 s" in done.stdout
    assert "the disk is full" in done.stdout
    assert "all is well" not in done.stdout


WATCHING = """
import sys
from pathlib import Path
from deploy.local.processes import ChildProcesses, ProcessFailed, StopRequested

with ChildProcesses(Path(sys.argv[1])) as children:
    for name in ("first", "second"):
        children.start(name, ["/bin/sh", "-c", "echo $$; exec sleep 60"], {}, 10)
    try:
        children.watch()
    except StopRequested:
        print("asked to stop")
    except ProcessFailed as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("target", "number", "told"),
    [
        ("launcher", signal.SIGINT, "asked to stop"),
        ("launcher", signal.SIGTERM, "asked to stop"),
        ("launcher", signal.SIGKILL, ""),
        ("second", signal.SIGKILL, "the second ended by SIGKILL"),
    ],
)
def test_no_child_outlives_the_launcher_and_one_that_dies_is_named(
    tmp_path: Path, target: str, number: signal.Signals, told: str
) -> None:
    command = [sys.executable, "-c", WATCHING, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launcher:
        logs = {name: tmp_path / f"{name}.log" for name in ("first", "second")}
        until("both run", lambda: all(each.exists() and each.read_text() for each in logs.values()))
        pids = {name: int(log.read_text()) for name, log in logs.items()}
        children = [psutil.Process(pid) for pid in pids.values()]
        os.kill(pids.get(target, launcher.pid), number)
        said, _ = launcher.communicate(timeout=30)
    assert told in said
    assert gone(children)
