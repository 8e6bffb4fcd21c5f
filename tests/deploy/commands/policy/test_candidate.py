"""`sluice policy candidate` against a running service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.commands.policy.__main__ import main
from tests.support.control_api import ControlApi, running_control_api

Say = Callable[..., tuple[int, str, str]]

NEW = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, payroll]
    denied_sources: []
    max_sensitivity: high
"""
GUARDRAIL = {"name": "no-payroll", "never": {"sources": ["payroll"]}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("candidate_command")) as api:
        yield api


@pytest.fixture
def say(api: ControlApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs an action. Returns its exit code, its output, and what it says beside that."""
    key = tmp_path / "key"
    key.write_text(api.admin_key)
    key.chmod(0o600)
    service = ["--url", f"http://127.0.0.1:{api.port}", "--key-file", str(key)]

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["candidate", *words, *service])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def new(tmp_path: Path) -> str:
    path = tmp_path / "default" / "new" / "support.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(NEW)
    return str(path)


def test_a_candidate_s_different_decisions_are_shown(api: ControlApi, say: Say, new: str) -> None:
    assert say("list") == (0, "", "there are no candidates\n")
    code, out, _ = say("publish", "tomorrow", new)
    assert code == 0
    assert out.startswith("`tomorrow` is a candidate of 1 policies, from revision ")
    for source in ("handbook", "payroll", "contracts"):
        api.evaluate(source_id=source)
    counted = "3 decided, 1 same, 1 newly denied, 1 newly allowed, 0 error"
    assert say("list") == (0, f"`tomorrow`: {counted}\n", "")
    code, out, beside = say("show", "tomorrow")
    assert (code, beside) == (0, f"{counted}\n")
    assert "+ `support` may newly read `payroll`: 1 from 20" in out
    assert "- `support` may no longer read `contracts`: 1 from 20" in out
    shown = json.loads(say("show", "tomorrow", "--json")[1])
    assert (shown["name"], shown["decided"]) == ("tomorrow", 3)
    assert json.loads(say("list", "--json")[1])[0]["name"] == "tomorrow"
    assert say("drop", "tomorrow") == (0, "`tomorrow` is dropped\n", "")
    assert say("list")[2] == "there are no candidates\n"


def test_a_promotion_that_breaks_a_guardrail_is_refused(
    api: ControlApi, say: Say, new: str
) -> None:
    api.admin("POST", "/v1/guardrails", GUARDRAIL)
    assert say("publish", "tomorrow", new)[0] == 0
    code, out, beside = say("promote", "tomorrow")
    assert (code, out) == (1, "")
    assert "no-payroll" in beside
    assert api.evaluate(source_id="payroll")["decision"] == "DENY"
    api.admin("DELETE", "/v1/guardrails/no-payroll")
    done = say("promote", "tomorrow")
    assert done == (0, "`tomorrow` is in force: 0 added, 1 updated, 0 unchanged, 0 removed\n", "")
    assert api.evaluate(source_id="payroll")["decision"] == "ALLOW"


def test_a_missing_argument_or_an_unknown_candidate_exits_with_2(say: Say) -> None:
    with pytest.raises(SystemExit, match="2"):
        say()
    code, _, beside = say("show", "nothing")
    assert code == 2
    assert "404" in beside
