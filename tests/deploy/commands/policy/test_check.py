"""`sluice policy check`: files whose guardrails hold, don't hold, or can't be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.commands.policy.__main__ import main
from tests.policies.definitions.policy_directory import ENTRY, of, write

RULES = """\
guardrails:
  - name: no-payroll
    never: {sources: ["payroll*"]}
  - name: analysts-read-contracts
    always: {roles: [analyst], sources: [contracts], levels: [high]}
"""
ASKED = "agent_role `analyst`, user_id `example-user`"
CONTRACTS = "source_id `contracts`, sensitivity_level `high`"
WIDE = ENTRY.replace("[contracts]", "[contracts, 'pay*']")


def test_guardrails_that_hold_exit_with_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, of(ENTRY))
    write(tmp_path, RULES, "default/guardrails.yaml")
    write(tmp_path, "tests: []", "default/lending/loans_test.yaml")
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr() == ("", "2 guardrails, 0 broken\n")
    assert main(["check", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"guardrails": 2, "broken": []}


def test_a_broken_guardrail_is_shown_with_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, of(WIDE))
    write(tmp_path, RULES, "default/guardrails.yaml")
    write(tmp_path, RULES, "other/guardrails.yaml")
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "default/guardrails.yaml:2: `no-payroll` is broken",
        f"  is allowed by `reads`: {ASKED}, source_id `payroll`, sensitivity_level `low`",
        "other/guardrails.yaml:4: `analysts-read-contracts` is broken",
        f"  is denied by `default_deny`, check `policy_exists`: {ASKED}, {CONTRACTS}",
    ]
    assert err == "4 guardrails, 2 broken\n"
    assert main(["check", "--json", "--tenant", "default"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "guardrails": 2,
        "broken": [
            {
                "tenant": "default",
                "guardrail": "no-payroll",
                "file": "default/guardrails.yaml",
                "line": 2,
                "counterexample": {
                    "agent_role": "analyst",
                    "user_id": "example-user",
                    "source_id": "payroll",
                    "sensitivity_level": "low",
                },
                "decision": "ALLOW",
                "policy_name": "reads",
                "check": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("at", "text", "said"),
    [
        ("default/guardrails.yaml", "guardrails: [{name: g}]", "default/guardrails.yaml:1: needs"),
        ("default/lending/loans.yaml", "policies:", "default/lending/loans.yaml:1: policies: must"),
        ("guardrails.yaml", RULES, "guardrails.yaml: belongs to no tenant"),
    ],
)
def test_an_invalid_file_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str, text: str, said: str
) -> None:
    write(tmp_path, of(WIDE))
    write(tmp_path, RULES, "default/guardrails.yaml")
    write(tmp_path, text, at)
    assert main(["check", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_directory_or_tenant_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    write(tmp_path, of(ENTRY))
    assert main(["check", str(tmp_path), "--tenant", "acme"]) == 2
    assert "holds no tenant `acme`" in capsys.readouterr().err


def test_patterns_that_can_t_be_analysed_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = [f"*{'?' * at}a{'?' * (20 - at)}b*" for at in range(20)]
    hard = ENTRY.replace("[contracts]", json.dumps(wild)).replace("[]", "['payroll*']")
    write(tmp_path, of(hard))
    write(tmp_path, RULES, "default/guardrails.yaml")
    assert main(["check", str(tmp_path)]) == 2
    assert "default/guardrails.yaml:2: can't be checked: the patterns" in capsys.readouterr().err
