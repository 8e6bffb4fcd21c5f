"""Files of tests in the console: decided by what is in force, or by a change of it."""

from __future__ import annotations

import pytest

from tests.control_api.console.reader import Shown, Visitor

PATH = "/console/policies/tests"
TESTS = """\
tests:
  - name: support reads the handbook
    ask: {agent_role: support, source_id: handbook, sensitivity_level: low}
    expect: {decision: ALLOW}
  - name: but never payroll
    ask: {agent_role: support, source_id: payroll, sensitivity_level: low}
    expect: {decision: DENY, check: source}
"""
OPEN = """\
name: support-reads
agent_role: support
allowed_sources: ["*"]
denied_sources: []
max_sensitivity: high
"""


def run(console: Visitor, tests: str, **fields: str) -> Shown:
    return console.submit(console.get(PATH), "/console/policies/tests/run", tests=tests, **fields)


def test_a_failing_case_is_shown_with_its_line_and_its_answer(console: Visitor) -> None:
    assert "as they expect: 2 cases" in run(console, TESTS).text
    shown = run(console, TESTS, policies=OPEN)
    assert "1 of 2 cases failed" in shown.text
    row = shown.main.find("tbody").find("tr").text
    assert row.startswith("but never payroll line 5")
    assert "ALLOW by support-reads" in row
    assert shown.main.find("textarea", name="tests").text == " ".join(TESTS.split())


@pytest.mark.deep(stands_in="test_a_failing_case_is_shown_with_its_line_and_its_answer")
def test_a_file_of_tests_is_decided(console: Visitor, reader: Visitor) -> None:
    assert "as they expect: 2 cases" in run(console, TESTS).text
    shown = run(reader, TESTS, policies=OPEN)
    assert "1 of 2 cases failed" in shown.text
    row = shown.main.find("tbody").find("tr").text
    assert row.startswith("but never payroll line 5")
    assert "ALLOW by support-reads" in row
    assert shown.main.find("textarea", name="tests").text == " ".join(TESTS.split())


def test_faults_of_a_file_of_tests_are_shown_at_their_line(console: Visitor) -> None:
    shown = run(console, TESTS.replace("expect: {decision: ALLOW}", "expects: {}"))
    assert "The file has faults" in shown.text
    assert "line 4" in shown.text
    shown = run(console, TESTS, policies="{")
    assert shown.status == 422
    assert run(console, "").status == 422
