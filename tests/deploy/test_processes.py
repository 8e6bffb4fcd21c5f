"""What the launcher says when a child does not get ready."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import ROOT

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
