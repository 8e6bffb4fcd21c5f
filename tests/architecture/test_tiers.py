"""Each claim has a test in the gate, each test has a measured cost, and costly ones earn theirs."""

from __future__ import annotations

import functools

from tests import costs
from tests.architecture import tests_found
from tests.architecture.tests_found import Function
from tests.architecture.tree import ROOT
from tests.runner import tiers

MEASURE = "measure them: make costs ARGS='{}'"
COSTLY_BY_NATURE = ("tests/architecture/", "tests/sidecar/redirect/")
"""Tests of the whole tree, or of a pod's network namespaces: no cheaper one makes their claims."""


@functools.cache
def functions() -> list[Function]:
    return tests_found.in_tree()


def table() -> costs.Table:
    return costs.load().table


def test_every_deep_test_names_a_test_of_the_gate_that_stands_in_for_it() -> None:
    gate = {each.node for each in functions() if not each.deep}
    wrong = [
        f"{each.node} names `{each.stands_in}`"
        for each in functions()
        if each.deep and each.stands_in not in gate
    ]
    assert not wrong


def test_every_test_has_been_measured() -> None:
    known = table()
    unknown = {each.file for each in functions() if each.name not in known.get(each.file, {})}
    assert not unknown, MEASURE.format(" ".join(sorted(unknown)))


def test_the_table_holds_no_test_that_is_gone() -> None:
    # A file may take over another one's tests, and a class inherit them: a name is enough.
    names = tests_found.everywhere()
    gone = [
        f"{file}::{name}"
        for file, entries in table().items()
        for name in entries
        if name != costs.FIXTURES
        and (name.rpartition("::")[2] not in names or not (ROOT / file).exists())
    ]
    assert not gone, f"python -m tests.costs forget {' '.join(gone)}"


def test_a_costly_test_of_the_gate_stands_in_for_others() -> None:
    known = table()
    named = {each.stands_in for each in functions()}
    gate: dict[str, list[Function]] = {}
    for each in functions():
        if not each.deep:
            gate.setdefault(each.file, []).append(each)
    costly = [
        f"{each.node} costs {known[file][each.name]} CPU seconds"
        for file, there in gate.items()
        for each in there
        if known.get(file, {}).get(each.name, 0) >= tiers.COSTLY
        and not file.startswith(COSTLY_BY_NATURE)
        and each.node not in named
        and not each.in_part
        and len(there) > 1
    ]
    assert not costly, (
        "mark it deep, name it as a stand-in, take a part of its cases, or make it cheaper"
    )


def test_marks_are_read_as_pytest_reads_them() -> None:
    found = list(
        tests_found.in_text(
            "tests/test_x.py",
            "import pytest\n"
            "def test_a(): pass\n"
            '@pytest.mark.deep(stands_in="test_a")\n'
            "@tiers.sampled('n')\n"
            "async def test_b(): pass\n"
            "@pytest.mark.deep\n"
            "def test_c(): pass\n"
            'class TestD:\n  @pytest.mark.deep(stands_in="tests/test_y.py::test_z")\n'
            "  def test_e(self): pass\n",
        )
    )
    assert [(each.name, each.deep, each.stands_in, each.in_part) for each in found] == [
        ("test_a", False, None, False),
        ("test_b", True, "tests/test_x.py::test_a", True),
        ("test_c", True, "", False),
        ("TestD::test_e", True, "tests/test_y.py::test_z", False),
    ]
