"""`sluice policy test`: what it prints, and its exit codes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from deploy.commands.policy.__main__ import main
from policies.definitions.policy_files import MAX_DEPTH
from tests.deploy.commands.policy.testing.trees import FAILING, POLICIES, TESTS, run, tree, write

README = (Path(__file__).parents[5] / "policies/README.md").read_text()


def test_cases_that_pass_print_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree(tmp_path)) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "5 cases, 5 passed, 0 failed\n"


def test_a_failure_is_a_line_with_its_place_and_the_nearest_miss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree(tmp_path, FAILING)) == 1
    printed = capsys.readouterr()
    assert printed.out == (
        f"{tmp_path}/default/lending/loans_test.yaml:2: reads salaries: expected ALLOW, by `reads`"
        ", decided DENY by `reads`, check `source`: source `salaries` is not in `allowed_sources` "
        "of policy `reads`; nearest miss: add `salaries` to `allowed_sources` of policy `reads`\n"
    )
    assert printed.err == "1 cases, 0 passed, 1 failed\n"


def test_a_call_that_is_allowed_has_no_nearest_miss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = TESTS.replace("{decision: ALLOW}", "{decision: DENY, check: source, reason: because}")
    assert run(tree(tmp_path, tests)) == 1
    assert capsys.readouterr().out.endswith(
        "expected DENY, check `source`, reason `because`, decided ALLOW by `reads`: policy `reads` "
        "allows role `analyst` to read `contracts` at `low`\n"
    )


@pytest.mark.parametrize(
    "path", ["", "default", "default/lending", "default/lending/loans_test.yaml"]
)
def test_a_path_is_a_tree_a_folder_or_a_file(
    tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path)
    write(tmp_path, {"default/more_test.yaml": TESTS, "other/a/b.yaml": POLICIES})
    assert run(tmp_path / path) == 0
    cases = 10 if path in ("", "default") else 5
    assert capsys.readouterr().err == f"{cases} cases, {cases} passed, 0 failed\n"


def test_the_current_folder_is_tested_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree(tmp_path, FAILING) / "default")
    assert run() == 1
    assert capsys.readouterr().out.startswith("lending/loans_test.yaml:2: reads salaries: ")


def test_each_tenant_is_decided_by_its_own_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path)
    other = POLICIES.replace("[contracts, handbook]", "[]")
    write(tmp_path, {"other/a/b.yaml": other, "other/a/b_test.yaml": TESTS})
    assert run(tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{tmp_path}/other/a/b_test.yaml:2: reads contracts: ")
    assert printed.out.count("\n") == 1


def test_coverage_lists_the_parts_that_no_case_depends_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--coverage", tree(tmp_path)) == 0
    printed = capsys.readouterr()
    place = f"{tmp_path}/default/lending/loans.yaml:2: not covered: "
    assert printed.out == (
        f"{place}`handbook` in `allowed_sources` of policy `reads`\n"
        f"{place}`payroll` in `denied_sources` of policy `reads`\n"
    )
    assert "coverage 50.0 %: 2 of 4 policies and entries\n" in printed.err


def test_a_tenant_without_tests_is_not_covered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tree(tmp_path), {"other/a/b.yaml": POLICIES})
    assert run("--min-coverage", "25", tmp_path) == 0
    assert run("--min-coverage", "26", tmp_path) == 1
    assert (
        "coverage 25.0 %: 2 of 8 policies and entries, at least 26 % asked\n"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("least", "code"), [("0", 0), ("50", 0), ("50.1", 1), ("100", 1)])
def test_a_coverage_that_is_too_low_fails(tmp_path: Path, least: str, code: int) -> None:
    assert run("--min-coverage", least, tree(tmp_path)) == code


def test_policies_without_an_entry_are_covered_as_a_whole(tmp_path: Path) -> None:
    tests = "tests: []\n"
    assert run("--min-coverage", "100", tree(tmp_path, tests, "policies: []\n")) == 0


@pytest.mark.parametrize("least", ["-1", "101", "many", "nan"])
def test_a_minimum_coverage_must_be_a_percentage(
    least: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("--min-coverage", least)
    assert stopped.value.code == 2
    assert f"`{least}` is not a number from 0 to 100" in capsys.readouterr().err


def test_the_json_has_failures_and_coverage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("--json", "--coverage", tree(tmp_path, TESTS + FAILING.removeprefix("tests:\n"))) == 1
    )
    found = json.loads(capsys.readouterr().out)
    file = f"{tmp_path}/default/lending/loans_test.yaml"
    reason = "source `salaries` is not in `allowed_sources` of policy `reads`"
    assert found == {
        "cases": 6,
        "passed": 5,
        "failed": 1,
        "failures": [
            {
                "file": file,
                "line": 7,
                "name": "reads salaries",
                "ask": {
                    "agent_role": "analyst",
                    "user_id": "test",
                    "source_id": "salaries",
                    "sensitivity_level": "low",
                    "source_type": "api",
                },
                "expected": {"decision": "ALLOW", "policy_name": "reads"},
                "decision": "DENY",
                "policy_name": "reads",
                "check": "source",
                "reason": reason,
                "nearest_miss": {
                    "check": "source",
                    "policy_name": "reads",
                    "change": "add `salaries` to `allowed_sources` of policy `reads`",
                },
                "suggestion": None,
            }
        ],
        "coverage": {
            "percent": 50.0,
            "covered": 2,
            "parts": 4,
            "uncovered": [
                {
                    "file": file.replace("_test", ""),
                    "line": 2,
                    "policy_name": "reads",
                    "list": of,
                    "entry": entry,
                }
                for of, entry in (("allowed_sources", "handbook"), ("denied_sources", "payroll"))
            ],
        },
    }


def test_the_json_without_failures_has_coverage_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", tree(tmp_path)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"cases": 5, "passed": 5, "failed": 0, "failures": []}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"default/lending/a_test.yaml": "tests:\n  - nam: x\n"}, "a_test.yaml:2: nam: unknown"),
        ({"default/lending/a_test.yaml": "tests: [\n"}, "a_test.yaml:1: is not YAML: "),
        ({"default/lending/a_test.yaml": ""}, "a_test.yaml: is empty"),
        ({"default/lending/a_test.yaml": "tests: []\ntests: []\n"}, "a_test.yaml:2: tests: dup"),
        ({"default/lending/a_test.yaml": POLICIES}, "a_test.yaml:1: policies: "),
        ({"default/lending/a.yaml": "policies:\n  - {}\n"}, "a.yaml:2: name: is required"),
        ({"default/stray.yaml": POLICIES}, "stray.yaml: is directly under the tenant's folder"),
        ({"stray_test.yaml": TESTS}, "stray_test.yaml: belongs to no tenant"),
    ],
)
def test_an_unusable_file_is_reported_with_its_line(
    tmp_path: Path, files: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tree(tmp_path), files)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert any(
        line.startswith(f"error: {tmp_path}/") and said in line for line in printed.err.splitlines()
    ), printed.err


def test_every_fault_of_every_file_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "tests:\n  - nam: x\n"
    tree(tmp_path, broken)
    write(tmp_path, {"default/a_test.yaml": broken, "other/a/b.yaml": "policies: 1\n"})
    assert run(tmp_path) == 2
    assert len({line.split(":")[1] for line in capsys.readouterr().err.splitlines()}) == 3


def test_a_link_out_of_the_tenant_s_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path / "tree")
    write(tmp_path, {"elsewhere/x_test.yaml": TESTS})
    (tmp_path / "tree/default/lending/x_test.yaml").symlink_to(tmp_path / "elsewhere/x_test.yaml")
    assert run(tmp_path / "tree") == 2
    assert "x_test.yaml: is a link out of the tenant's folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("none", "` does not exist"),
        ("default/lending/loans.yaml", "its name does not end in `_test.yaml`"),
        ("empty", "` holds no policies and is in no folder of a tenant that has some"),
        ("untested", "` holds no file that ends in `_test.yaml`"),
    ],
)
def test_a_path_without_tests_is_no_success(
    tmp_path: Path, path: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Far down: policies are looked for in the folders above, which other tests write to.
    root = tmp_path.joinpath(*["above"] * MAX_DEPTH, "policies")
    tree(root)
    write(root, {"empty/readme.txt": "", "untested/a/b.yaml": POLICIES})
    assert run(root / path) == 2
    assert said in capsys.readouterr().err


def test_the_readme_s_example_passes_and_fails_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policies, tests = (
        re.findall(rf"```yaml\n({start}.*?)```", README, re.DOTALL)
        for start in ("policies:", "given:")
    )
    monkeypatch.chdir(tree(tmp_path, *tests, *policies))
    assert run() == 0
    assert capsys.readouterr().err == "26 cases, 26 passed, 0 failed\n"
    changed = tests[0].replace("but never payroll", "and salaries")
    changed = changed.replace("source_id: payroll,", "source_id: salaries,")
    tree(tmp_path, changed.replace("{decision: DENY, check: source}", "{decision: ALLOW}"))
    write(tmp_path, {"default/lending/loans.yaml": policies[0]})
    assert run() == 1
    assert f"```text\n{capsys.readouterr().out}```" in README


def test_every_option_and_member_is_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert len(options) == 5
    section = README.split("## Test policies")[1].split("\n## ")[0]
    assert {each for each in options if f"| `{each}" not in section} == set()


def test_each_covered_part_is_missed_if_it_is_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the files that `sluice policy init` writes, which are covered as a whole."""
    assert main(["init", str(tmp_path / "new")]) == 0
    root = tmp_path / "new"
    capsys.readouterr()
    assert run("--json", "--min-coverage", "100", root) == 0
    parts = json.loads(capsys.readouterr().out)["coverage"]["parts"]
    (path,) = root.glob("default/*/loans.yaml")
    policies = yaml.safe_load(path.read_text())["policies"]
    removed = 0
    for number, each in enumerate(policies):
        rest = [*policies[:number], *policies[number + 1 :]]
        smaller = [rest]
        for of in ("allowed_sources", "denied_sources", "denied_tasks"):
            entries = each.get(of, [])
            smaller += [
                [*rest, {**each, of: [*entries[:at], *entries[at + 1 :]]}]
                for at in range(len(entries))
            ]
        for left in smaller:
            path.write_text(yaml.safe_dump({"policies": left}))
            assert run(root) == 1, left
            removed += 1
    assert removed == parts


def test_a_source_that_a_policy_names_by_its_end_is_suggested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree(tmp_path, FAILING.replace("salaries", "chroma://db/handbook"))) == 1
    assert capsys.readouterr().out.endswith(
        "; did you mean: policy `reads` names `handbook`, and this source's whole id is "
        "`chroma://db/handbook`: write `chroma://db/handbook` in `allowed_sources`\n"
    )
