"""The runner: each test runs once, whatever happens to its worker; what fails is tried again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import pytest

from tests.runner import worker
from tests.runner.batches import costliest_first
from tests.support.stack import ROOT

CONFTEST = 'pytest_plugins = ("tests.runner.plugin", "tests.runner.tiers")\n'
PASSES = """
import pytest

@pytest.mark.parametrize("n", range(40))
def test_passes(n):
    assert n < 40

@pytest.fixture(scope="module")
def once():
    print("set up")
    with open("once", "a") as f:
        f.write("x")

def test_first(once): pass
def test_second(once): pass

@pytest.mark.deep(stands_in="test_passes")
def test_deep(): assert False, "not in the gate"

def test_writes(tmp_path, capfd):
    print("captured")
    assert capfd.readouterr().out == "captured\\n"
"""
FAILS = """
import os
from pathlib import Path

def test_fails(): assert 1 == 2, "always"

def test_fails_once():
    seen = Path("seen")
    assert seen.exists() or seen.touch(), "the first time"

def test_ends_its_worker(): os._exit(3)

def test_after_it(): pass

def test_warns():
    import warnings
    warnings.warn("to be seen")
"""

ENDS_ALONE = """
import os, time
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        return (yield)
    os.close(os.open("ending", os.O_CREAT | os.O_EXCL))
    time.sleep(0.5)
    os.unlink("ending")
    return (yield)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a suite of its own."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    return tmp_path


def run(project: Path, *options: str) -> tuple[int, str]:
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "--workers=2", *options]
    done = subprocess.run(
        command, cwd=project, env=environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.deep(stands_in="test_batches_contain_every_test_once_and_the_costliest_come_first")
def test_each_test_of_the_gate_runs_once(project: Path) -> None:
    (project / "tests/test_passes.py").write_text(PASSES)
    (project / "tests/test_more.py").write_text("def test_more(): pass\n")
    code, said = run(project)
    assert code == 0, said
    assert re.search(r"=+ 44 passed in", said), said
    assert (project / "once").read_text() == "x"
    assert "slowest tests" in said


@pytest.mark.deep(stands_in="test_the_first_failure_ends_a_run_that_is_to_stop_there")
def test_failures_are_tried_again_and_a_dead_worker_is_replaced(project: Path) -> None:
    (project / "tests/test_fails.py").write_text(FAILS)
    code, said = run(project)
    assert code == 1, said
    assert re.search(r"=+ 2 failed, 3 passed, 1 warning in", said), said
    assert "exit code 3" in said
    assert "to be seen" in said
    assert "how it failed at first" in said
    assert "the first time" in said
    assert said.rstrip().splitlines()[-1].startswith("1 passed at the second try")
    record = (project / "tests/second_tries.md").read_text()
    assert record.count("test_fails_once") == 1
    (project / "seen").unlink()
    code, said = run(project, "-k", "once")
    assert code == 1, said
    assert "find the cause" in said


@pytest.mark.deep(stands_in="test_a_worker_waits_while_another_ends")
def test_workers_end_one_after_the_other(project: Path) -> None:
    (project / "tests/conftest.py").write_text(CONFTEST + ENDS_ALONE)
    for name in "ab":
        (project / f"tests/test_{name}.py").write_text("def test_passes(): pass\n")
    code, said = run(project)
    assert code == 0, said


def test_a_worker_waits_while_another_ends() -> None:
    with Path(worker.__file__).open("rb") as another:
        with worker.ending_alone(), pytest.raises(BlockingIOError):
            flock(another, LOCK_EX | LOCK_NB)
        flock(another, LOCK_EX | LOCK_NB)


def test_the_first_failure_ends_a_run_that_is_to_stop_there(project: Path) -> None:
    (project / "tests/test_fails.py").write_text(FAILS)
    code, said = run(project, "-x", "--workers=1")
    assert code == 1, said
    assert re.search(r"=+ 1 failed in", said), said


def test_batches_contain_every_test_once_and_the_costliest_come_first() -> None:
    nodeids = [f"tests/test_{file}.py::test_{n}" for file in "abc" for n in range(10)]
    batches = costliest_first(nodeids, lambda nodeid: 4.0 if "_b" in nodeid else 0.1, 2)
    assert sorted(n for batch in batches for n in batch.tests) == list(range(30))
    assert [batch.cost for batch in batches] == sorted((b.cost for b in batches), reverse=True)
    files = [{nodeids[n].partition("::")[0] for n in batch.tests} for batch in batches]
    assert all(len(each) == 1 for each in files)
    assert sum("tests/test_b.py" in each for each in files) == 8
