"""What compiling needs, and what a machine without it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata

from deploy.compile.build_hook import REQUIRED, CompiledCore
from deploy.compile.compiler import CannotCompile
from tests.deploy.package.distribution import ROOT

NO_COMPILER = os.environ | {"CC": "/absent/cc"}


def test_check_names_what_is_missing() -> None:
    command = [sys.executable, "-m", "deploy.compile", "check"]
    answer = subprocess.run(
        command, cwd=ROOT, env=NO_COMPILER, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert "there is no C compiler `/absent/cc`" in answer.stderr


def test_building_a_compiled_wheel_without_a_compiler_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", NO_COMPILER["CC"])
    metadata = ProjectMetadata[Any](str(ROOT), None)
    hook = CompiledCore(str(ROOT), {}, None, metadata, str(ROOT), "wheel")
    data: dict[str, Any] = {"force_include": {}}
    with pytest.raises(CannotCompile, match="there is no C compiler `/absent/cc`"):
        hook.initialize("standard", data)
    assert data == {"force_include": {}}
    hook.initialize("editable", data)


@pytest.mark.deep(stands_in="test_building_a_compiled_wheel_without_a_compiler_fails")
def test_a_platform_wheel_is_not_built_as_a_pure_one_where_nothing_can_compile(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    answer = subprocess.run(
        command,
        cwd=ROOT,
        env=NO_COMPILER | {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode != 0
    assert "there is no C compiler `/absent/cc`" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_isolated_build_gets_the_requirements_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = extras["optional-dependencies"]["compile"]
    assert {*REQUIRED} == {each for each in asked if not each.startswith("hatchling")}


@pytest.mark.parametrize("kept", ["Makefile", "tests/compiled/worker.py"])
def test_the_compiled_tree_is_a_copy_of_everything_the_tests_need(kept: str) -> None:
    from deploy.compile.compiler import (
        LEFT_OUT,  # the rule by itself: compiling takes half a minute
    )

    assert (ROOT / kept).is_file()
    assert not {*Path(kept).parts} & {*LEFT_OUT}
