"""Tests that a service started as a fork behaves as one in an interpreter of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.fork_server import ROOT, Fork, Started
from tests.support.ports import free_port


def started(path: Path, command: Sequence[str], **environ: str) -> Started:
    with path.open("wb") as output:
        return fork_server.start(
            [sys.executable, *command], output, {**os.environ, **environ}, ROOT
        )


@pytest.mark.deep(stands_in="test_a_fork_has_its_own_environment_and_can_be_killed_by_a_signal")
@pytest.mark.parametrize("module", fork_server.MODULES)
def test_output_and_exit_code_are_those_of_the_command(module: str, tmp_path: Path) -> None:
    for arguments in (["--help"], ["--no-such-option"]):
        forked = started(tmp_path / "forked", ["-m", module, *arguments])
        real = started(tmp_path / "real", ["-m", module, *arguments], PYTHONUTF8="1")
        assert isinstance(forked, Fork)
        assert not isinstance(real, Fork)
        assert forked.wait(60) == real.wait(60) == forked.poll()
        assert (tmp_path / "forked").read_text() == (tmp_path / "real").read_text()


def test_a_fork_has_its_own_environment_and_can_be_killed_by_a_signal(tmp_path: Path) -> None:
    environ = {
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
        "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{free_port()}",
    }
    service = started(tmp_path / "output", ["-m", "control_api"], **environ)
    assert isinstance(service, Fork)
    assert service.poll() is None
    seen = Path(f"/proc/{service.pid}/cwd").readlink()
    assert seen == ROOT
    service.kill()
    assert service.wait(60) == -signal.SIGKILL
    service.kill()  # as of a process that has ended, nothing


@pytest.mark.parametrize(
    "command", [["-c", "print('own')"], ["-m", "json.tool", "--help"]], ids=["code", "module"]
)
def test_every_other_command_gets_its_own_interpreter(command: list[str], tmp_path: Path) -> None:
    process = started(tmp_path / "output", command)
    assert not isinstance(process, Fork)
    assert process.wait(60) == 0
