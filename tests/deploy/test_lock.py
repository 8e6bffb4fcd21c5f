"""The part of the lock that an image or a host installs for some extras."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.install import LOCK, pins
from deploy.lock import BASE, EXTRAS, part
from tests.deploy.launcher import ROOT
from tests.support.documents import commands

CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

OLDEST_PYTHON = (3, 11)


def pinned(extra: str) -> set[str]:
    return {block.partition("==")[0] for block in pins(part(LOCK.read_text(), [extra]))}


def closure(asked: list[str]) -> set[str]:
    """All distributions that `asked` leads to, by what is installed here."""
    found: set[tuple[str, str]] = set()
    left = [Requirement(each) for each in asked]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in requirement.extras or {""}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            if name == "sluice-governance":
                left += map(Requirement, CONFIG["optional-dependencies"][extra])
                continue
            for each in map(Requirement, requires(name) or ()):
                if each.marker is None or each.marker.evaluate({"extra": extra}):
                    left.append(each)
            if extra:
                left.append(Requirement(name))
    return {name for name, _ in found} - {"sluice-governance"}


@pytest.mark.parametrize("extra", [BASE, *EXTRAS])
def test_the_lock_names_the_requirements_of_each_extra(extra: str) -> None:
    """After a change by hand: `python -m deploy.lock --mark` writes these comments again."""
    asked = [*CONFIG["dependencies"], *CONFIG["optional-dependencies"].get(extra, [])]
    try:
        expected = closure(asked)
    except PackageNotFoundError as missing:
        pytest.skip(f"this environment lacks a distribution of the lock: {missing}")
    # The lock serves every Python: an older one than this may need more.
    older = {
        block.partition("==")[0] for block in pins(LOCK.read_text()) if "python_version <" in block
    }
    needed, locked = expected - older, pinned(extra) - older
    assert needed <= locked
    # A newer one may need less: the lock is made with the oldest.
    assert locked == needed or sys.version_info[:2] > OLDEST_PYTHON


def test_every_extra_of_users_is_known() -> None:
    assert {*CONFIG["optional-dependencies"]} - {"test", "bench"} == {*EXTRAS}


def test_a_sidecar_needs_neither_a_database_nor_pydantic() -> None:
    assert not pinned("sidecar") & {"sqlalchemy", "aiosqlite", "asyncpg", "alembic", "pydantic"}
    assert not pinned("sidecar") & {"redis", "botocore", "watchfiles"}


def test_the_documented_command_prints_the_part_with_its_hashes() -> None:
    lines = commands("deploy/README.md", "install by hash").splitlines()[1:]
    (python, *words, into, file), by_hash, wheel = map(shlex.split, lines)
    assert (python, into, words[:2]) == ("python", ">", ["-m", "deploy.lock"])
    command = [sys.executable, *words]
    assert by_hash == ["pip", "install", "--no-deps", "--require-hashes", "-r", file]
    assert wheel == ["pip", "install", "--no-deps", "sluice_governance-*.whl"]
    printed = subprocess.check_output(command, cwd=ROOT, text=True)
    blocks = pins(printed)
    assert {block.partition("==")[0] for block in blocks} == pinned("sidecar") | pinned("redis")
    assert all("--hash=sha256:" in block for block in blocks)
    assert "".join(blocks) == printed
