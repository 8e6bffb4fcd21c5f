"""The gate takes a part of a product, and one of two databases; the deep tier takes all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.stack import ROOT

SUITE = """
import pytest
from tests.runner import tiers

@tiers.sampled("page", "check")
@pytest.mark.parametrize("check", list("abcdef"))
@pytest.mark.parametrize("page", range(20))
def test_product(page, check): pass

@pytest.fixture(params=["sqlite", "postgresql"])
def database(request): return request.param

@pytest.mark.parametrize("case", range(3))
def test_on_a_database(database, case): pass

@tiers.rotating(0, 2)
@pytest.mark.parametrize("page", range(20))
def test_even(page): pass

@tiers.rotating(1, 2)
@pytest.mark.parametrize("page", range(20))
def test_odd(page): pass

@pytest.mark.deep(stands_in="test_product")
def test_deep(): pass
"""


def collected(folder: Path, *options: str) -> list[str]:
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (folder / "conftest.py").write_text(
        'pytest_plugins = ("tests.runner.plugin", "tests.runner.tiers")\n'
    )
    (folder / "test_x.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_the_gate_takes_each_value_once_and_one_database(tmp_path: Path) -> None:
    gate = collected(tmp_path)
    product = [each for each in gate if each.startswith("test_product")]
    cases = [each.partition("[")[2].rstrip("]").split("-") for each in product]
    assert {page for page, _ in cases} == {str(number) for number in range(20)}
    assert {check for _, check in cases} == set("abcdef")
    assert len(product) < 30
    assert len([each for each in gate if each.startswith("test_on_a_database")]) == 3
    turns = [each.partition("[")[2] for each in gate if each.startswith(("test_even", "test_odd"))]
    assert sorted(turns) == sorted(f"{number}]" for number in range(20))
    assert "test_deep" not in gate
    everything = collected(tmp_path, "--deep")
    assert len(everything) == 20 * 6 + 2 * 3 + 40 + 1
    assert set(gate) < set(everything)
    assert collected(tmp_path, "test_x.py::test_deep") == ["test_deep"]
