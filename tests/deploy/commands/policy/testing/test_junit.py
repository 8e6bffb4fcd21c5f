"""The report for CI systems, read by a library that they use."""

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.commands.policy.testing.trees import FAILING, TESTS, run, tree, write

junitparser = pytest.importorskip("junitparser", reason="the library `junitparser` is missing")


def read(path: Path) -> list[Any]:
    return list(junitparser.JUnitXml.fromfile(str(path)))


def test_each_file_is_a_suite_and_each_case_a_test(tmp_path: Path) -> None:
    root = tree(tmp_path / "tree")
    write(root, {"default/lending/more_test.yaml": FAILING})
    assert run("--junit", tmp_path / "report.xml", root) == 1
    passing, failing = read(tmp_path / "report.xml")
    assert (passing.tests, passing.failures, passing.errors) == (5, 0, 0)
    assert (failing.tests, failing.failures, failing.errors) == (1, 1, 0)
    assert passing.name == f"{root}/default/lending/loans_test.yaml"
    names = [case.name for case in passing]
    assert names[0] == "reads contracts"
    assert len(set(names)) == 5
    (case,) = failing
    assert (case.name, case.classname) == ("reads salaries", failing.name)
    (failure,) = case.result
    assert failure.message.startswith(f"{failing.name}:2: reads salaries: expected ALLOW")
    assert "nearest miss" in failure.text
    whole = junitparser.JUnitXml.fromfile(str(tmp_path / "report.xml"))
    assert (whole.tests, whole.failures, whole.errors) == (6, 1, 0)


def test_odd_characters_are_kept_or_escaped(tmp_path: Path) -> None:
    odd = '<&">\\u2028é\\ufffe'
    tests = TESTS.replace("reads contracts", f'"{odd}"').replace('"<&">', '"<&\\">')
    assert run("--junit", tmp_path / "report.xml", tree(tmp_path / "tree", tests)) == 0
    ((first, *_),) = (list(suite) for suite in read(tmp_path / "report.xml"))
    assert first.name == '<&">\u2028é\\ufffe'


def test_a_file_with_faults_is_an_error_in_the_report(tmp_path: Path) -> None:
    """A report of an earlier run must not stay: it would say that all is well."""
    (tmp_path / "report.xml").write_text("old")
    assert run("--junit", tmp_path / "report.xml", tree(tmp_path / "tree", "tests: 1\n")) == 2
    (suite,) = read(tmp_path / "report.xml")
    (case,) = suite
    (error,) = case.result
    assert isinstance(error, junitparser.Error)
    assert "loans_test.yaml:1: tests: must be a list" in error.message


def test_a_report_that_can_t_be_written_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--junit", tmp_path / "none" / "report.xml", tree(tmp_path / "tree")) == 2
    assert "report.xml` can't be written: No such file" in capsys.readouterr().err
