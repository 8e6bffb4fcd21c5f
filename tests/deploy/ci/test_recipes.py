"""The recipes for CI, run as the shell steps that they consist of: a change that widens what
policies allow fails, one that narrows it passes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.commands.policy.__main__ import main as policy
from tests.architecture.tree import ROOT
from tests.support.documents import blocks

GITHUB, GITLAB = (ROOT / "deploy/ci" / name for name in ("github.yaml", "gitlab.yaml"))
HOOKS = ROOT / ".pre-commit-hooks.yaml"

POLICY = """\
policies:
  - name: reads
    agent_role: analyst
    allowed_sources: [contracts, "kb-*"]
    denied_sources: [payroll]
    max_sensitivity: high
"""
TESTS = """\
tests:
  - name: an analyst reads contracts
    ask: {agent_role: analyst, source_id: contracts, sensitivity_level: low}
    expect: {decision: ALLOW, policy_name: reads}
"""
GUARDRAILS = """\
guardrails:
  - name: payroll-is-closed
    never: {sources: ["payroll*"]}
"""
NARROWED = POLICY.replace('"kb-*"', '"kb-a*"')
WIDENED = POLICY.replace('"kb-*"', '"k*"')


def commit(checkout: Path, changes: dict[str, str], message: str = "Change") -> None:
    for name, text in changes.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", message)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.test")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone on a branch of its own, of a repository with policies of two tenants."""
    origin, found = tmp_path / "origin", tmp_path / "checkout"
    subprocess.run(["git", "init", "-q", "-b", "main", str(origin)], check=True)
    files = {"lending/loans.yaml": POLICY, "lending/loans_test.yaml": TESTS}
    files |= {"guardrails.yaml": GUARDRAILS}
    commit(
        origin,
        {f"policies/{tenant}/{n}": text for tenant in ("one", "two") for n, text in files.items()},
    )
    subprocess.run(["git", "clone", "-q", str(origin), str(found)], check=True)
    git(found, "checkout", "-q", "-b", "change")
    return found


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    """With `sluice` as it is here, and a `pip` that installs nothing."""
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    python = shlex.quote(sys.executable)
    for name, line in (
        ("sluice", f'exec {python} -m deploy.command "$@"'),
        ("pip", 'test "$*" = "install ./sluice_governance-0.1.0-py3-none-any.whl"'),
    ):
        if not (programs / name).exists():
            program(programs / name, line)
    path = f"{programs}:{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder.parent)}


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment(folder) | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def failing(recipe: Path, folder: Path, job: str = "") -> list[str]:
    """The first failing step of each job, or of one; none if all pass."""
    found = []
    for name, steps in (github_jobs() if recipe is GITHUB else gitlab_jobs()).items():
        for script, variables in steps if name.endswith(job) else ():
            ran = shell(script, folder, **variables)
            if ran.returncode:
                found.append(script)
                break
    return found


Steps = list[tuple[str, dict[str, str]]]


def github_jobs() -> dict[str, Steps]:
    workflow = yaml.safe_load(GITHUB.read_text())
    known = {"${{ github.base_ref }}": "main"}
    jobs: dict[str, Steps] = {}
    for name, job in workflow["jobs"].items():
        jobs[name] = [
            (step["run"], workflow["env"] | {k: known[v] for k, v in step.get("env", {}).items()})
            for step in job["steps"]
            if "run" in step
        ]
    return jobs


def gitlab_jobs() -> dict[str, Steps]:
    # GitLab runs the lines of a job in one shell.
    jobs = yaml.safe_load(GITLAB.read_text())
    variables = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    return {
        name: [
            (
                "\n".join(jobs[job["extends"]]["before_script"] + job["script"]),
                jobs[job["extends"]]["variables"] | variables,
            )
        ]
        for name, job in jobs.items()
        if not name.startswith(".")
    }


RECIPES = pytest.mark.parametrize("recipe", [GITHUB, GITLAB], ids=["github", "gitlab"])
FAILING = """\
read -r step code tenant < "$HOME/failing"
echo "$*" >> "$HOME/asked"
test "$2" = "$step" || exit 0
case "$* " in *"$tenant "*) exit "$code" ;; esac"""


def fails_just_if_one_of_its_commands_does(recipe: Path, checkout: Path) -> None:
    environment(checkout)
    program(checkout.parent / "bin/sluice", FAILING)
    (checkout / "policies/three").mkdir(exist_ok=True)  # a tenant without a past
    for step, code, tenant, job in (
        ("none", 0, "", "valid"),
        ("lint", 1, "", "valid"),
        ("test", 1, "", "valid"),
        ("check", 1, "", "valid"),
        ("none", 0, "", "widened"),
        # 1 is a widened policy, 2 a tenant that the target does not have.
        ("diff", 1, "--tenant one", "widened"),
        ("diff", 2, "--tenant two", "widened"),
    ):
        (checkout.parent / "failing").write_text(f"{step} {code} {tenant}\n")
        failed = failing(recipe, checkout, job)
        assert [f"sluice policy {step}" in each for each in failed] == [True] * (code > 0), step
    asked = [line.split() for line in (checkout.parent / "asked").read_text().splitlines()]
    assert {each[1] for each in asked} == {"lint", "test", "check", "diff"}
    for line in asked:
        assert line[-1] == "policies"
        assert line[1] != "diff" or line[2:5] == ["--fail-on", "widened", "--tenant"]
    assert {line[5] for line in asked if line[1] == "diff"} == {"one", "two", "three"}


@pytest.mark.deep(stands_in="test_the_hooks_pass_valid_policies_and_fail_widened_ones")
@RECIPES
def test_a_narrowed_policy_passes(recipe: Path, checkout: Path) -> None:
    commit(checkout, {"policies/two/lending/loans.yaml": NARROWED})
    assert failing(recipe, checkout) == []


@pytest.mark.deep(stands_in="test_the_hooks_pass_valid_policies_and_fail_widened_ones")
@RECIPES
def test_a_widened_policy_fails_the_job_that_compares(recipe: Path, checkout: Path) -> None:
    commit(checkout, {"policies/one/lending/loans.yaml": WIDENED})
    [failed] = failing(recipe, checkout)
    assert "sluice policy diff" in failed


@RECIPES
def test_a_recipe_compares_with_where_the_branch_began(recipe: Path, checkout: Path) -> None:
    began = git(checkout, "rev-parse", "HEAD").strip()
    commit(checkout.parent / "origin", {"policies/one/lending/loans.yaml": NARROWED})
    commit(checkout, {"policies/two/lending/loans.yaml": NARROWED})
    git(checkout, "fetch", "-q")
    environment(checkout)
    program(checkout.parent / "bin/sluice", 'echo "$*" >> "$HOME/asked"')
    assert failing(recipe, checkout, "widened") == []
    asked = (checkout.parent / "asked").read_text().split()
    assert [each for each in asked if each.startswith("git:")] == [f"git:{began}"] * 2


@pytest.mark.deep(stands_in="test_a_recipe_compares_with_where_the_branch_began")
@RECIPES
def test_later_changes_of_the_target_branch_are_not_part_of_the_comparison(
    recipe: Path, checkout: Path
) -> None:
    commit(checkout.parent / "origin", {"policies/one/lending/loans.yaml": NARROWED})
    commit(checkout, {"policies/two/lending/loans.yaml": NARROWED})
    git(checkout, "fetch", "-q")
    assert failing(recipe, checkout, "widened") == []


MISTAKES = {
    "lint": ("lending/loans.yaml", "policies: [{}]"),
    "test": ("lending/loans_test.yaml", TESTS.replace("ALLOW", "DENY")),
    "check": ("guardrails.yaml", GUARDRAILS.replace("payroll*", "kb-*")),
}


@pytest.mark.deep(stands_in="test_the_hooks_pass_valid_policies_and_fail_widened_ones")
@RECIPES
def test_each_step_fails_by_itself(recipe: Path, checkout: Path) -> None:
    jobs = github_jobs() if recipe is GITHUB else gitlab_jobs()
    lines = [line for steps in jobs.values() for script, _ in steps for line in script.splitlines()]
    for step, (name, text) in MISTAKES.items():
        [command] = [line for line in lines if line.startswith(f"sluice policy {step} ")]
        path = checkout / "policies/one" / name
        before = path.read_text()
        path.write_text(text)
        assert shell(command, checkout, POLICIES="policies").returncode
        path.write_text(before)


@pytest.mark.deep(stands_in="test_the_hooks_pass_valid_policies_and_fail_widened_ones")
@RECIPES
def test_a_tenant_without_a_past_fails_for_a_person_to_decide(recipe: Path, checkout: Path) -> None:
    commit(checkout, {"policies/three/lending/loans.yaml": POLICY})
    assert failing(recipe, checkout, "widened")


def test_each_action_is_pinned_by_its_commit() -> None:
    used = re.findall(r"uses: (\S+)", GITHUB.read_text())
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", each) for each in used)


def hooks() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load(HOOKS.read_text())


def hook(name: str, folder: Path, *arguments: str) -> int:
    """Runs a hook as pre-commit does: its entry, then its arguments."""
    [found] = [each for each in hooks() if each["id"] == f"sluice-policy-{name}"]
    assert found["pass_filenames"] is False
    command = shlex.join([*shlex.split(found["entry"]), *(arguments or found["args"])])
    return shell(command, folder).returncode


def each_command_fails_by_itself(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process. All that a tenant without a past allows is new."""
    monkeypatch.chdir(checkout)
    for step, (name, text) in MISTAKES.items():
        path = checkout / "policies/two" / name
        before = path.read_text()
        path.write_text(text)
        assert policy([step, "policies"]) == 1, step
        path.write_text(before)
        assert policy([step, "policies"]) == 0, step
    (checkout / "policies/three/lending").mkdir(parents=True)
    (checkout / "policies/three/lending/loans.yaml").write_text(POLICY)
    words = ["diff", "--fail-on", "widened", "--tenant", "three", "git:origin/main", "policies"]
    assert policy(words) == 1


def test_the_hooks_pass_valid_policies_and_fail_widened_ones(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [each["id"].removeprefix("sluice-policy-") for each in hooks()]
    assert names == ["lint", "test", "check", "diff"]
    assert [hook(name, checkout) for name in names[:-1]] == [0, 0, 0]
    alone = ("--tenant", "one", "git:origin/main", "policies")
    # What is to be committed is in the checkout, and in no commit yet.
    for text, code in ((WIDENED, 1), (NARROWED, 0)):
        (checkout / "policies/one/lending/loans.yaml").write_text(text)
        assert hook("diff", checkout, *alone) == code
    each_command_fails_by_itself(checkout, monkeypatch)
    # The recipes run the same commands, and make something of each.
    for recipe in (GITHUB, GITLAB):
        fails_just_if_one_of_its_commands_does(recipe, checkout)


def test_the_readme_s_configuration_names_hooks_that_exist() -> None:
    [text] = [each.text for each in blocks("deploy/ci/README.md") if each.language == "yaml"]
    [repository] = yaml.safe_load(text)["repos"]
    assert [each["id"] for each in repository["hooks"]] == [each["id"] for each in hooks()]
