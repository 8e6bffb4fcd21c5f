"""A real control API for the operator's commands, shared by the tests of a module."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.client.client import run
from tests.support.stack import Stack


@dataclass(frozen=True)
class Said:
    """A command's output and exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Operator:
    """Runs commands, with the admin's key unless another is named."""

    url: str
    key_file: Path
    capture: Callable[[], Any]

    def __call__(self, *words: str, **environ: str) -> Said:
        given = {"SLUICE_URL": self.url, "SLUICE_KEY_FILE": str(self.key_file), **environ}
        try:
            code = run(words[0], list(words[1:]), given)
        except SystemExit as usage:  # argparse's
            code = usage.code if isinstance(usage.code, int) else 1
        out, err = self.capture()
        return Said(code, out, err)

    def done(self, *words: str) -> Said:
        """Runs a command that must succeed."""
        said = self(*words)
        assert said.code == 0, said.err
        return said


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    started = Stack(tmp_path_factory.mktemp("stack"))
    try:
        started.start_control()
        yield started
    finally:
        started.control.stop()


@pytest.fixture
def operator(stack: Stack, capsys: pytest.CaptureFixture[str]) -> Operator:
    capsys.readouterr()
    return operator_of(stack, capsys.readouterr)


def operator_of(stack: Stack, capture: Callable[[], Any]) -> Operator:
    first = stack.directory / "data" / "first-start.json"
    return Operator(f"http://127.0.0.1:{stack.control.port}", first, capture)


@pytest.fixture
def key_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a file with a key."""

    def write(key: str) -> Path:
        path = tmp_path / "operator.key"
        path.write_text(f"{key}\n")
        path.chmod(0o600)
        return path

    return write


def evaluate(stack: Stack, **changed: Any) -> Any:
    """An evaluation by the control API, whose event is then in the log."""
    body = {
        "agent_role": "support",
        "user_id": "ann",
        "source_id": "handbook",
        "sensitivity_level": "low",
    }
    return stack.admin("POST", "/v1/context/evaluate", {**body, **changed})


def environ_of(operator: Operator, **more: str) -> dict[str, str]:
    """The environment of a command that runs as a process."""
    root = str(Path(__file__).resolve().parents[4])
    ours = {"SLUICE_URL": operator.url, "SLUICE_KEY_FILE": str(operator.key_file)}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return clean | {"PYTHONPATH": root} | ours | more
