"""The command line of `sluice policy lint`, `diff`, `who` and `can`: what is printed, exit codes,
and where policies come from, a running service included."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.commands.policy.__main__ import main
from tests.deploy.commands.policy.test_git_tree import commit, git
from tests.support.control_api import ControlApi, running_control_api

ROOT = Path(__file__).parents[4]
IN_FORCE = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, "kb-*"]
    denied_sources: [kb-secret]
    max_sensitivity: high
"""
WIDER = IN_FORCE.replace("[kb-secret]", "[]")
BROKEN = IN_FORCE.replace("max_sensitivity: high", "max_sensitivity: top")


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("SLUICE_URL", "SLUICE_KEY_FILE", "SLUICE_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str | Path) -> Said:
        try:
            code = main([*map(str, arguments)])
        except SystemExit as error:
            code = int(str(error.code))
        return Said(code, *capsys.readouterr())

    return command


def tree(root: Path, **tenants: str) -> Path:
    for tenant, text in tenants.items():
        path = root / tenant / "retail" / "support.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return tree(tmp_path / "old", default=IN_FORCE)


@pytest.fixture
def wider(tmp_path: Path) -> Path:
    return tree(tmp_path / "wider", default=WIDER)


def test_diff_prints_what_changes_and_fails_only_on_request(
    run: Run, old: Path, wider: Path
) -> None:
    said = run("diff", old, wider)
    assert said.code == 0
    assert said.out.splitlines()[0] == "+ `support` may newly read `kb-secret` at low, medium, high"
    assert "for example: agent_role `support`" in said.out
    name = "`support-reads`"
    assert f"before: DENY by {name}, check `source`; after: ALLOW by {name}" in said.out
    assert said.err == "1 newly allowed, 0 newly denied\n"
    back = run("diff", wider, old)
    assert back.out.startswith("- `support` may no longer read `kb-secret`")
    codes = [
        run("diff", one, other, "--fail-on", what).code
        for one, other in ((old, wider), (wider, old), (old, old))
        for what in ("widened", "changed")
    ]
    assert codes == [1, 1, 0, 1, 0, 0]
    found = run("diff", old, wider, "--json").json
    assert [row["sources"] for row in found["newly_allowed"]] == [["kb-secret"]]
    assert found["newly_denied"] == []


def test_diff_of_a_file_and_of_a_tree_with_several_tenants(run: Run, tmp_path: Path) -> None:
    root = tree(tmp_path / "root", default=IN_FORCE, ten_acme=WIDER)
    file = root / "default" / "retail" / "support.yaml"
    assert run("diff", file, root / "ten_acme" / "retail" / "support.yaml").out.startswith("+ ")
    assert run("diff", root, root, "--tenant", "ten_acme").out == ""
    said = run("diff", file, root)
    assert said.code == 2
    assert "(`default`, `ten_acme`): name one, --tenant" in said.err
    assert run("diff", file, root, "--tenant", "ten_acme").out.startswith("+ ")


def test_diff_of_revisions(run: Run, old: Path) -> None:
    git(old, "init", "-q")
    commit(old)
    tree(old, default=WIDER)
    for revision in ("git:HEAD", f"git:HEAD:{old}"):
        assert run("diff", revision, old).out.startswith("+ `support` may newly read `kb-secret`")
    commit(old)
    assert run("diff", f"git:HEAD~1:{old}", f"git:HEAD:{old}", "--fail-on", "widened").code == 1
    assert run("who", "kb-secret", "--policies", f"git:HEAD~1:{old}").out == ""


@pytest.mark.parametrize("revision", ["git:", "git:--output=x", "git:-x", "git:none", "git::"])
def test_an_odd_revision_is_refused_and_writes_nothing(
    run: Run, old: Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    git(old, "init", "-q")
    commit(old)
    before = sorted(old.rglob("x"))
    monkeypatch.chdir(old)
    said = run("diff", revision, old)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("sluice policy: ")
    assert sorted(old.rglob("x")) == before


def test_unusable_files_are_reported_with_file_and_line(run: Run, tmp_path: Path) -> None:
    broken = tree(tmp_path / "broken", default=BROKEN)
    said = run("lint", broken)
    assert said.code == 1
    assert "default/retail/support.yaml:6" in said.out
    for arguments in (("diff", broken, broken), ("who", "a", "--policies", broken)):
        said = run(*arguments)
        assert (said.code, said.out) == (2, "")
        assert "default/retail/support.yaml:6" in said.err
    missing = run("can", "support", "--policies", tmp_path / "none")
    assert (missing.code, missing.out) == (2, "")
    assert "does not exist" in missing.err


def test_patterns_that_overlap_in_too_many_ways_are_reported(
    run: Run, old: Path, tmp_path: Path
) -> None:
    text = IN_FORCE.replace('"kb-*"', f'"*a{"?" * 20}"')
    worst = tree(tmp_path / "worst", default=text)
    said = run("diff", old, worst)
    assert said.code == 2
    assert f"`*a{'?' * 20}`" in said.err


def test_lint_counts_valid_files_and_succeeds(run: Run, old: Path) -> None:
    said = run("lint", old)
    assert (said.code, said.out) == (0, "")
    assert said.err == "1 policy, 0 errors, 0 warnings\n"


def test_who_and_can_answer_from_policy_files(run: Run, old: Path) -> None:
    said = run("who", "kb-1", "--policies", old)
    assert said.code == 0
    assert said.out.splitlines() == [
        "`support` may read `kb-1` at low, medium, high",
        "  agents: every agent, and calls without one",
        "  tasks: every task, and calls without one",
        "  by policy: `support-reads`",
    ]
    assert "the registry was not asked" in said.err
    assert run("who", "kb-secret", "--policies", old).err.endswith(
        "\nno one may read `kb-secret`\n"
    )
    none = run("who", "kb-1", "--level", "critical", "--task", "t", "--policies", old)
    assert none.out == ""
    assert none.err.endswith("\nno one may read `kb-1` at `critical` for task `t`\n")
    unknown = run("can", "other", "--agent", "a", "--policies", old)
    assert unknown.err.endswith("\n`other` may not read anything by agent `a`\n")
    rows = run("can", "support", "--task", "t", "--agent", "a", "--policies", old, "--json").json
    assert [(row["agents"], row["tasks"]) for row in rows["rows"]] == [(["a"], ["t"])]
    assert run("can", "other", "--policies", old, "--json").json == {"rows": []}


def test_contradictory_arguments_are_refused_with_a_message(run: Run, old: Path) -> None:
    assert "give one of the two" in run("who", "a", "--policies", old, "--url", "http://a").err
    neither = run("who", "a")
    assert neither.code == 2
    assert "--policies PATH, or the service, --url URL" in neither.err
    assert run("diff", "live", "live").code == 2
    assert "say which path" in run("diff", "live", "git:HEAD").err
    assert "--key-file" in run("diff", "live", old).err


def test_a_reader_that_closes_the_pipe_causes_no_error(old: Path, wider: Path) -> None:
    command = [sys.executable, "-m", "deploy.commands.policy", "diff", str(old), str(wider)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert b"Traceback" not in told
    assert b"Exception" not in told
    assert process.returncode in (0, 1)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("api"), policies=IN_FORCE) as started:
        started.approved("agt_1")
        started.admin("POST", "/v1/agents", {"agent_id": "agt_2", "agent_role": "support"})
        yield started


@pytest.fixture
def service(api: ControlApi, tmp_path: Path) -> list[str]:
    key = tmp_path / "key"
    key.write_text(api.new_key("read"))
    key.chmod(0o600)
    return ["--url", f"http://127.0.0.1:{api.port}", "--key-file", str(key)]


def test_diff_reads_the_policies_in_force_on_either_side(
    run: Run, service: list[str], old: Path, wider: Path
) -> None:
    """As the same files would be."""
    for one, other, code in (("live", wider, 1), (wider, "live", 0)):
        files = [old if each == "live" else each for each in (one, other)]
        found = run("diff", one, other, "--json", "--fail-on", "widened", *service)
        assert (found.code, found.json) == (code, run("diff", *files, "--json").json)


@pytest.mark.deep(stands_in="test_diff_reads_the_policies_in_force_on_either_side")
def test_diff_compares_with_the_policies_in_force(
    run: Run, service: list[str], old: Path, wider: Path
) -> None:
    said = run("diff", "live", old, *service)
    assert (said.code, said.out) == (0, "")
    for one, other in (("live", wider), (wider, "live")):
        files = [wider if each == wider else old for each in (one, other)]
        found = run("diff", one, other, "--json", *service).json
        assert found == run("diff", *files, "--json").json
    assert run("diff", "live", wider, "--fail-on", "widened", *service).code == 1
    assert run("diff", wider, "live", "--fail-on", "widened", *service).code == 0


def test_who_and_can_include_the_agents_registered_at_a_service(
    run: Run, service: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run("who", "kb-1", *service)
    assert said.out.splitlines()[3] == "  registered: `agt_1`"
    assert said.err == ""
    monkeypatch.setenv("SLUICE_URL", service[1])
    rows = run("can", "support", "--level", "low", "--key-file", service[3], "--json").json["rows"]
    assert {tuple(row["agent_ids"]) for row in rows} == {("agt_1",)}


def test_a_service_that_refuses_or_is_unreachable_is_reported(
    run: Run, service: list[str], api: ControlApi, old: Path
) -> None:
    Path(service[3]).write_text(api.new_key("evaluate"))
    said = run("who", "kb-1", *service)
    assert (said.code, said.out) == (2, "")
    assert "sluice policy: 403 Forbidden: " in said.err
    away = run("diff", "live", old, "--url", "http://127.0.0.1:1", *service[2:])
    assert away.code == 2
    assert "no response from `http://127.0.0.1:1`: Connection refused" in away.err


def test_the_help_says_that_levels_of_sources_are_not_applied(run: Run) -> None:
    said = " ".join(run("--help").out.split())
    assert "a sidecar's settings and /v1/sources state of a source" in said
    assert "are not applied" in said
