"""The parts of what `sluice up` made, started one by one as `README.md` says."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from shlex import quote

import pytest
import yaml

from tests.architecture.tree import ROOT
from tests.deploy.launcher import environ, up
from tests.support.documents import commands, paste, put

STARTED = "Paste into another terminal"


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_the_next_start_uses_what_the_first_one_made_and_ctrl_c_drains_both"
)
def test_the_parts_of_a_first_start_run_one_by_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data) as first:
        first.until_printed(STARTED)
        assert first.interrupt() == 0
    settings = yaml.safe_load((data / "sidecar.yaml").read_text())
    control, chroma, sidecar = (
        address.rpartition(":")[2]
        for address in (settings["control"], settings["sources"][0]["upstream"], settings["listen"])
    )
    script = commands("README.md", "start the parts one by one")
    for written, here in (
        ("source .venv/bin/activate\n", ""),
        (".sluice", quote(str(data))),
        ("--port 8000", f"--port {chroma}"),
        ("--port 8700", f"--port {control}"),
        ("127.0.0.1:8700", f"127.0.0.1:{control}"),
        ("--port 8710", f"--port {sidecar}"),
    ):
        assert written in script
        script = script.replace(written, here)
    put(tmp_path / "bin", "sluice", f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n')
    given = environ(
        PATH=f"{tmp_path / 'bin'}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
    )
    ended = "sluice fleet\nkill %1 %2 %3\nwait\n"
    # A part that runs on after a failed command would hold the output open, and the test up.
    begun = "set -m\ntrap 'kill $(jobs -p) || true' EXIT\n"
    done = paste(f"{begun}{script}{ended}", ROOT, given)
    assert done.returncode == 0, done.stderr
    assert "sluice-up" in done.stdout
