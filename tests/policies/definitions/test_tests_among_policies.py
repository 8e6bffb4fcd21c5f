"""Files of tests stand beside policies, and define no policy."""

from pathlib import Path

import pytest

from policies.definitions.load import load_tenant
from policies.definitions.policy_files import strays
from tests.policies.definitions.policy_directory import ENTRY, faults, of, write

TESTS = "tests: []\n"


def test_files_of_tests_define_no_policies_wherever_they_are(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    for at in ("t/x_test.yaml", "t/a/a_test.yaml", "t/a/deep/er/x_test.yaml", "t/b/_test.yaml"):
        write(tmp_path, TESTS, at)
    assert [each.file for each in load_tenant(tmp_path, "t")] == ["t/a/a.yaml"]


def test_a_file_of_tests_outside_of_tenants_is_a_fault(tmp_path: Path) -> None:
    write(tmp_path, TESTS, "x_test.yaml")
    assert [each.file for each in strays(tmp_path)] == ["x_test.yaml"]


@pytest.mark.parametrize(
    "text",
    [of(ENTRY), "# a\npolicies: []\n", "{policies: []}", '"policies": []', "'policies' : []"],
)
def test_policies_in_a_file_named_like_tests_are_a_fault(tmp_path: Path, text: str) -> None:
    """It was a file of policies before there were tests: they would silently be gone."""
    write(tmp_path, text, "t/a/load_test.yaml")
    (only,) = faults(tmp_path, "t")
    line = 2 if text.startswith("#") else 1
    assert only == (
        f"t/a/load_test.yaml:{line}: policies: defines policies, but a file that ends in "
        "`_test.yaml` has tests alone"
    )


@pytest.mark.parametrize("text", [b"tests: [", b"\xff", b"", b"tests:\n  - name: 'policies: x'\n"])
def test_a_broken_file_of_tests_does_not_prevent_loading_policies(
    tmp_path: Path, text: bytes
) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, text, "t/a/a_test.yaml")
    assert len(load_tenant(tmp_path, "t")) == 1
