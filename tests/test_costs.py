"""The table of costs: a case's mean without its first use, and entries that follow a moved file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import costs
from tests.costs import Cost


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "costs.json"


def test_a_function_s_cost_is_that_of_a_usual_case(file: Path) -> None:
    seconds = (2.0, 0.1, 0.2, 0.3)
    measured = [Cost(f"tests/test_x.py::test_a[{n}]", each, 0) for n, each in enumerate(seconds)]
    costs.update([*measured, Cost("tests/test_x.py::TestB::test_c", 0.5, 0.25)], file)
    table = costs.load(file)
    assert table.of("tests/test_x.py::test_a[7]") == 0.2
    assert table.of("tests/test_x.py::TestB::test_c") == 0.5
    assert table.of("tests/test_x.py::test_new") == costs.UNKNOWN
    assert table.table["tests/test_x.py"][costs.FIXTURES] == 0.25


def test_costs_that_were_not_measured_are_kept(file: Path) -> None:
    costs.update([Cost("tests/test_x.py::test_a", 1.0, 0)], file)
    costs.update([Cost("tests/test_y.py::test_b", 2.0, 0)], file)
    assert costs.load(file).of("tests/test_x.py::test_a") == 1.0


def test_entries_follow_a_moved_file_and_a_moved_folder(file: Path) -> None:
    costs.update([Cost("tests/a/b/test_x.py::test_a", 1.0, 0)], file)
    assert costs.move("tests/a/b", "tests/c", file) == 1
    assert costs.move("tests/c/test_x.py", "tests/c/test_y.py", file) == 1
    assert costs.move("tests/a", "tests/d", file) == 0
    assert list(costs.load(file).table) == ["tests/c/test_y.py"]


def test_a_test_that_is_gone_is_forgotten_and_with_the_last_one_its_file(file: Path) -> None:
    costs.update([Cost("tests/test_x.py::test_a", 1.0, 0)], file)
    costs.update([Cost("tests/test_x.py::test_b", 1.0, 0)], file)
    costs.forget(["tests/test_x.py::test_a"], file)
    assert list(costs.load(file).table["tests/test_x.py"]) == [costs.FIXTURES, "test_b"]
    costs.forget(["tests/test_x.py::test_b"], file)
    assert costs.load(file).table == {}
