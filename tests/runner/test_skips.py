"""A skip that the list expects passes; any other is named."""

from __future__ import annotations

import os

import pytest

from tests.architecture.tree import ROOT
from tests.runner import skips

ON_A_SERVER = "tests/kubernetes/test_chart.py::test_it[a-b]"
NO_SERVER = "no kube-apiserver here: set TEST_KUBE_APISERVER to its path"
AS_ROOT = ("tests/sidecar/doctor/test_command.py::test_it", "as root, more is found")


def test_a_listed_skip_is_expected_with_pytest_s_prefix_or_without() -> None:
    assert skips.unexpected([(ON_A_SERVER, NO_SERVER)]) == []
    assert skips.unexpected([(ON_A_SERVER, f"Skipped: {NO_SERVER}")]) == []


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (ON_A_SERVER, "no helm here: its wheel brings it"),
        ("tests/policies/test_walk.py::test_it", NO_SERVER),
        ("tests/control_api/console/test_page.py::test_it", "no chromium here: …"),
    ],
)
def test_another_reason_or_another_test_is_unexpected(test: str, reason: str) -> None:
    assert skips.unexpected([(test, reason)]) == [f"{test}: {reason}"]


@pytest.mark.parametrize(("user_id", "expected"), [(0, True), (1000, False)])
def test_a_skip_for_root_is_expected_of_root_alone(
    user_id: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user_id)
    assert (skips.unexpected([AS_ROOT]) == []) == expected


def test_each_entry_names_tests_that_exist_and_says_why() -> None:
    for each in skips.expected():
        place = each.tests.partition("::")[0].removesuffix("/*")
        assert (ROOT / place).exists(), each.tests
        assert each.why.endswith("."), each.tests
        assert each.needs, each.tests
        assert each.user in ("any", "root", "ordinary"), each.tests
