"""What an operator does in an incident, and the README's examples as written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.deploy.commands.client.conftest import Operator, environ_of, evaluate
from tests.support.documents import commands
from tests.support.stack import ROOT, Stack

README = (ROOT / "deploy" / "README.md").read_text()


def test_sessions_are_revoked_by_filters_that_all_match(operator: Operator, stack: Stack) -> None:
    for session, user in (("a-1", "ann"), ("a-2", "ann"), ("b-1", "bob")):
        evaluate(stack, session_id=session, user_id=user)
    words = ("revoke", "sessions", "--reason", "account taken over")
    assert (
        operator.done(*words, "--user", "ann", "--role", "none").out == "0 sessions are revoked\n"
    )
    done = operator.done(*words, "--user", "ann", "--role", "support")
    assert done.out == "2 sessions are revoked\n"
    listed = operator.done("sessions", "list", "--json", "--all").json
    states = {each["session_id"]: each["status"] for each in listed}
    assert (states["a-1"], states["a-2"], states["b-1"]) == ("revoked", "revoked", "active")
    assert operator.done(*words, "--user", "bob", "--json").json == {"revoked": 1}


def test_a_suspended_agent_is_denied_until_it_is_approved_again(
    operator: Operator, stack: Stack
) -> None:
    operator.done("agents", "register", "--role", "support", "--id", "agt_desk")
    for action in ("submit", "approve", "suspend"):
        operator.done("agents", action, "agt_desk")
    assert evaluate(stack, agent_id="agt_desk")["policy_name"] == "agent_not_approved"
    operator.done("agents", "approve", "agt_desk")
    assert evaluate(stack, agent_id="agt_desk")["decision"] == "ALLOW"
    assert operator.done("revoke", "agent", "agt_desk").out == "agent agt_desk is suspended\n"
    assert evaluate(stack, agent_id="agt_desk")["decision"] == "DENY"


def test_a_freeze_denies_everything_until_it_is_lifted(operator: Operator, stack: Stack) -> None:
    assert evaluate(stack)["decision"] == "ALLOW"
    frozen = operator.done("freeze", "a key leaked")
    assert re.match(r"the tenant is frozen since \S+Z, every evaluation is denied: ", frozen.out)
    assert evaluate(stack)["policy_name"] == "tenant_frozen"
    assert "a key leaked" in operator.done("freeze", "another reason").out
    assert operator.done("freeze", "--status", "--json").json["frozen"] is True
    lifted, again = (operator.done("freeze", "--lift") for _ in range(2))
    assert lifted.out == again.out == "the tenant is not frozen\n"
    # The second wrote nothing, so there is no revision to wait for.
    assert ("revision" in lifted.err, again.err) == (True, "")
    assert evaluate(stack)["decision"] == "ALLOW"


@pytest.mark.parametrize("title", ["operating", "replace", "incident", "erasure"])
def test_each_command_of_the_readme_is_done(
    title: str, operator: Operator, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a shell: `sluice` is called, what it reads is given, and what it writes is here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"readme")))
    (policy,) = re.findall(r"^```yaml\n(name: .*?)^```", README, re.MULTILINE | re.DOTALL)
    (tmp_path / "loans.yaml").write_text(policy)
    agent, session = f"agt_{title}", f"s-{title}"
    evaluate(stack, session_id=session, user_id="readme")
    if title in ("replace", "incident"):
        operator.done("agents", "register", "--id", agent, "--role", "support")
        operator.done("agents", "submit", agent)
        operator.done("agents", "approve", agent)
    key = stack.admin("POST", "/v1/keys", {"name": "leaked", "scope": "read"})["key_id"]
    script = commands("deploy/README.md", title)
    for shown, here in (("agt_loans", agent), ("s-77", session), ("$KEY_ID", key)):
        script = script.replace(shown, here)
    said = []
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        if "sluice" in words:
            words = words[words.index("sluice") + 1 :]
            said.append(operator.done(*words[: words.index(">") if ">" in words else None]).out)
    many, told = {
        "operating": (13, f"{agent}  approved"),
        "replace": (2, f"key {key} is revoked"),
        "incident": (8, f"session {session} is revoked"),
        "erasure": (1, "complete"),
    }[title]
    assert (len(said), told in "".join(said)) == (many, True)
    left = stack.admin("GET", "/v1/audit/events?user_id=readme")
    assert bool(left) == (title != "erasure")


@pytest.mark.deep(stands_in="test_each_command_of_the_readme_is_done")
def test_the_examples_of_the_readme_work_as_they_are_written(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "sluice"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n')
    command.chmod(0o755)
    (policy,) = re.findall(r"^```yaml\n(name: .*?)^```", README, re.MULTILINE | re.DOTALL)
    (tmp_path / "loans.yaml").write_text(policy)
    (tmp_path / ".sluice").symlink_to(operator.key_file.parent)
    evaluate(stack, session_id="s-77", user_id="u-1001")
    answers, ended = {}, {}
    for title in ("operating", "replace", "incident"):
        made = stack.admin("POST", "/v1/keys", {"name": "leaked", "scope": "read"})
        ended[title] = made["key_id"]
        block = commands("deploy/README.md", title)
        answer = subprocess.run(
            ["bash", "-ec", block.replace("http://127.0.0.1:8700", operator.url)],
            cwd=tmp_path,
            env=environ_of(operator, PATH=f"{tmp_path}/bin:/usr/bin:/bin", KEY_ID=ended[title]),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        answers[title] = answer.stdout
    assert re.search(r"^agt_loans +approved ", answers["operating"], re.MULTILINE)
    assert "created" in answers["operating"]
    for title in ("replace", "incident"):
        assert f"key {ended[title]} is revoked" in answers[title]
    assert "session s-77 is revoked" in answers["incident"]
    # `--out` replaces no file: `mv` does.
    assert (tmp_path / "agent.key").read_text().startswith("slc_")
    assert not (tmp_path / "new.key").exists()
