"""`sluice policies` against a real control API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deploy.commands.client.conftest import Operator
from tests.support.stack import Stack

POLICY = """\
policies:
  - name: {name}
    agent_role: claims
    allowed_sources: [claims]
    denied_sources: []
    max_sensitivity: {level}
"""


def test_policies_are_applied_by_name_and_deleted(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(POLICY.format(name="claims-desk", level="low"))
    planned = operator.done("policies", "apply", str(file), "--dry-run")
    assert planned.out.splitlines()[1].split() == ["-", "claims-desk", "-", "would", "create"]
    outcomes = []
    for level in ("low", "low", "high"):
        file.write_text(POLICY.format(name="claims-desk", level=level))
        (done,) = operator.done("policies", "apply", str(file), "--json").json
        outcomes.append((done["outcome"], done["version"]))
    assert outcomes == [("created", 1), ("same", 1), ("replaced", 2)]
    shown = operator.done("policies", "show", "claims-desk", "--json").json
    assert shown["max_sensitivity"] == "high"
    assert operator.done("policies", "show", shown["policy_id"], "--json").json == shown
    history = operator.done("policies", "history", "claims-desk").out.splitlines()
    assert [line.split()[:2] for line in history[1:]] == [["2", "updated"], ["1", "created"]]
    operator.done("policies", "delete", "claims-desk")
    gone = operator("policies", "show", "claims-desk")
    assert (gone.code, gone.out) == (2, "")
    assert "lists with the action `deleted`, or `removed` if it came from a file" in gone.err
    deleted = operator.done("changes", "--type", "policy", "--action", "deleted").out
    assert f"{shown['policy_id']} (claims-desk)" in deleted
    # No policy file of the control API defines it.
    assert operator("policies", "restore", shown["policy_id"]).code == 1


def test_a_policy_of_a_file_is_restored_and_files_are_reloaded(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    shown = operator.done("policies", "show", "support-reads", "--json").json
    fields = ("name", "agent_role", "allowed_sources", "denied_sources")
    policy = {name: shown[name] for name in fields} | {"max_sensitivity": "low"}
    (tmp_path / "one.json").write_text(json.dumps(policy))
    operator.done("policies", "apply", str(tmp_path / "one.json"))
    listed = operator.done("policies", "list", "--role", "support", "--json").json
    assert [each["user_modified"] for each in listed] == [True]
    operator.done("policies", "restore", "support-reads")
    assert operator.done("policies", "show", "support-reads", "--json").json["version"] == 3
    stack.policy_file.write_text("policies:\n  - name: a\n")
    broken = operator("policies", "reload")
    stack.policy_file.write_text(stack.policies)
    assert broken.code == 1
    assert "demo/support.yaml:2: " in broken.err
    assert "support-reads" in operator.done("policies", "reload").out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("name: a\nname: b\n", "line 2: the key `name` occurs twice"),
        (
            "policies: [{name: a, denied_sources: [x], denied_sources: []}]",
            "the key `denied_sources` occurs twice",
        ),
        ("name: 2026-01-31\n", "such as a date"),
        ("[a", "is not YAML or JSON"),
        ("just text", "neither a policy nor a list"),
        ("policies: []", "neither a policy nor a list"),
        ("[{name: a}, {name: a}]", "needs a `name` of its own"),
        ("[{agent_role: a}]", "needs a `name` of its own"),
    ],
)
def test_an_unusable_policy_file_is_refused_before_a_request(
    operator: Operator, tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    said = operator("policies", "apply", str(tmp_path / "p.yaml"), SLUICE_URL="http://192.0.2.1")
    assert said.code == 2
    assert fault in said.err
    assert operator("policies", "apply", str(tmp_path / "none.yaml")).code == 2


def test_policies_applied_before_a_refused_one_are_reported(
    operator: Operator, tmp_path: Path
) -> None:
    good = POLICY.format(name="first-of-two", level="low")
    bad = POLICY.format(name="second-of-two", level="extreme").partition("\n")[2]
    (tmp_path / "p.yaml").write_text(good + bad)
    said = operator("policies", "apply", str(tmp_path / "p.yaml"))
    assert said.code == 1
    assert "first-of-two" in said.out
    assert "created" in said.out
    assert "second-of-two" not in said.out
    assert "max_sensitivity: " in said.err
    operator.done("policies", "delete", "first-of-two")
