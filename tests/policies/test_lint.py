"""Warnings about policies whose author probably meant something else, and the command that prints
them."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.policy.__main__ import main
from policies.analysis.names import TooManyClasses
from policies.analysis.redundancy import Idle
from policies.definitions.definition import Definition
from policies.definitions.model import Policy
from policies.lint import lint
from tests.policies.definitions.policy_directory import ENTRY, of, write

BODY = {
    "name": "reads",
    "agent_role": "analyst",
    "allowed_sources": ["contracts"],
    "denied_sources": [],
    "max_sensitivity": "high",
    "allowed_tasks": [],
    "denied_tasks": [],
    "session_ttl_minutes": None,
    "permitted_agent_ids": [],
    "industry": "lending",
    "process_group": "loans",
}
OF_ANOTHER = BODY | {"name": "others", "agent_role": "other"}


def warnings(**changes: object) -> list[str]:
    found = lint([Definition("t/a/a.yaml", 7, BODY | changes)])
    assert all((each.file, each.line) == ("t/a/a.yaml", 7) for each in found)
    return [f"{each.key}: {each.message.removeprefix('`reads`: ')}" for each in found]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"denied_sources": ["payroll"]},
        {"allowed_sources": ["*"], "denied_sources": ["payroll", "hr-*"]},
        {"max_sensitivity": "critical"},
        {"allowed_tasks": ["report"], "denied_tasks": ["export"]},
        {"permitted_agent_ids": ["agt_*", "spiffe://a/?"]},
        {"allowed_sources": ["kb-*", "handbook"]},
    ],
)
def test_an_unambiguous_policy_has_no_warning(changes: dict[str, object]) -> None:
    assert warnings(**changes) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"allowed_sources": []}, [": does nothing: it allows nothing and denies nothing"]),
        (
            {"denied_sources": ["*"]},
            ["allowed_sources: `contracts` does nothing: the policy itself denies it"],
        ),
        (
            {"allowed_sources": ["*"], "max_sensitivity": "critical"},
            ["allowed_sources: allows every source at every sensitivity"],
        ),
        (
            {"denied_sources": ["contracts"]},
            ["allowed_sources: `contracts` does nothing: the policy itself denies it"],
        ),
        (
            {"allowed_tasks": ["export"], "denied_tasks": ["export"]},
            ["allowed_tasks: `export` does nothing: the policy itself denies it"],
        ),
        (
            {"denied_sources": ["con*"]},
            ["allowed_sources: `contracts` does nothing: the policy itself denies it"],
        ),
        (
            {"denied_sources": ["hr-*", "hr-pay", "hr-?"]},
            [
                "denied_sources: `hr-pay` is redundant: `hr-*` covers it",
                "denied_sources: `hr-?` is redundant: `hr-*` covers it",
            ],
        ),
        (
            {"allowed_sources": ["*", "contracts", "kb-*"]},
            [
                "allowed_sources: `contracts` is redundant: `*` covers it",
                "allowed_sources: `kb-*` is redundant: `*` covers it",
            ],
        ),
        (
            {"allowed_sources": ["kb-[ab]"]},
            ["allowed_sources: `kb-[ab]`: `[` is literal, not a character class"],
        ),
        (
            {"permitted_agent_ids": ["agt_[0-9]*"]},
            ["permitted_agent_ids: `agt_[0-9]*`: `[` is literal, not a character class"],
        ),
        (
            {"denied_tasks": ["export*"]},
            ["denied_tasks: `export*`: `*` and `?` are not wildcards in this list"],
        ),
        (
            {"allowed_sources": ["contracts", "contracts"]},
            ["allowed_sources: `contracts` is listed twice"],
        ),
        (
            {"denied_sources": [" payroll"]},
            ["denied_sources: ` payroll` begins or ends with white space, which is significant"],
        ),
    ],
)
def test_a_likely_mistake_is_a_warning(changes: dict[str, object], said: list[str]) -> None:
    assert warnings(**changes) == said


def test_warnings_are_sorted_and_name_their_policy() -> None:
    found = lint(
        Definition(file, line, BODY | {"name": f"{file}{line}", "allowed_sources": []})
        for file, line in (("b", 2), ("a", 9), ("b", 1))
    )
    assert [str(each) for each in found] == [
        f"{place}: does nothing: it allows nothing and denies nothing"
        for place in ("a:9: `a9`", "b:1: `b1`", "b:2: `b2`")
    ]


def test_a_warning_names_what_decides_instead() -> None:
    bodies = [
        BODY | {"name": "one", "allowed_sources": ["contracts", "hr-pay"]},
        BODY | {"name": "two", "allowed_sources": ["contracts", "kb-*"], "max_sensitivity": "low"},
        BODY | {"name": "guard", "allowed_sources": [], "denied_sources": ["hr-*"]},
        *(BODY | {"name": f"part-{n}", "allowed_sources": [f"kb-{n}"]} for n in range(5)),
        BODY | {"name": "parts", "allowed_sources": [f"kb-{n}" for n in range(5)]},
    ]
    parts = "`part-0`, `part-1`, `part-2`"
    found = lint(Definition("t/a/a.yaml", line, body) for line, body in enumerate(bodies, 1))
    assert [str(each).removeprefix("t/a/a.yaml:") for each in found] == [
        "1: allowed_sources: `one`: `hr-pay` does nothing: policy `guard` always denies it",
        "2: allowed_sources: `two`: `contracts` does nothing: policy `one` allows the same as well",
        *(
            f"{4 + n}: `part-{n}`: does nothing: policy `parts` allows the same as well"
            for n in range(5)
        ),
        f"9: `parts`: does nothing: policies {parts} and others together allow the same as well",
    ]


def test_only_policies_of_the_same_tenant_and_role_are_compared() -> None:
    files = ("t/a/a.yaml", "u/a/a.yaml")
    both = [Definition(file, 1, BODY) for file in files]
    assert lint(both) == []
    assert lint([both[0], Definition("t/b/b.yaml", 1, BODY | {"agent_role": "other"})]) == []
    assert len(lint([both[0], Definition("t/b/b.yaml", 1, BODY | {"name": "again"})])) == 2


def test_an_analysis_that_would_take_too_long_causes_a_warning() -> None:
    words = [f"*{character}*" for character in "abcdefghijklmnopqrstuvwxyz"]
    [found] = lint([Definition("t/a/a.yaml", 3, BODY | {"allowed_sources": words})])
    assert str(found).startswith(
        "t/a/a.yaml:3: `reads`: not checked for what does nothing in role `analyst`: the patterns"
        " `*a*`, `*b*`, `*c*`"
    )


def test_a_role_whose_analysis_was_given_up_causes_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def give_up(policies: Iterable[Policy]) -> Iterator[Idle]:
        if next(iter(policies)).agent_role == "analyst":
            raise TooManyClasses(["*a*"])
        return iter(())

    # The real analysis takes a third of a second until it gives up.
    monkeypatch.setattr("policies.lint.idle", give_up)
    found = lint([Definition("t/a/a.yaml", 3, BODY), Definition("t/a/b.yaml", 4, OF_ANOTHER)])
    assert [(each.file, each.line) for each in found] == [("t/a/a.yaml", 3)]
    assert "not checked for what does nothing in role `analyst`: the patterns `*a*`" in str(
        found[0]
    )


def test_a_clean_directory_exits_with_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, of(ENTRY))
    assert main(["lint", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "1 policy, 0 errors, 0 warnings\n")


def test_a_warning_is_not_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, of(ENTRY.replace("[contracts]", "[]")))
    assert main(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "warning: default/lending/loans.yaml:2: `reads`: does nothing: "
        "it allows nothing and denies nothing\n"
    )


def test_errors_of_every_tenant_are_printed_and_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "policies:", "a/x/x.yaml")
    write(tmp_path, "policies: {}", "b/x/x.yaml")
    write(tmp_path, of(ENTRY), "c/x/x.yaml")
    write(tmp_path, of(ENTRY), "stray.yaml")
    assert main(["lint", str(tmp_path), *(f"--tenant={each}" for each in "abc")]) == 1
    out, err = capsys.readouterr()
    assert [line.split(": ")[:2] for line in out.splitlines()] == [
        ["error", "stray.yaml"],
        ["error", "a/x/x.yaml:1"],
        ["error", "b/x/x.yaml:1"],
    ]
    assert err == "1 policy, 3 errors, 0 warnings\n"


@pytest.mark.parametrize(
    ("folder", "arguments", "hint"),
    [
        ("defualt", [], ": did you mean `default`?"),
        ("Default", [], ": did you mean `default`?"),
        ("ten_short", [], ""),
        ("ten_" + "a" * 21, ["ten_" + "a" * 22], f": did you mean `ten_{'a' * 22}`?"),
        ("ten_" + "b" * 22, ["ten_" + "a" * 22], ""),
        ("loans", ["loan"], ": did you mean `loan`?"),
    ],
)
def test_a_folder_without_a_tenant_is_a_warning(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    arguments: list[str],
    hint: str,
) -> None:
    write(tmp_path, of(ENTRY), f"{folder}/a/a.yaml")
    assert main(["lint", str(tmp_path), *(f"--tenant={each}" for each in arguments)]) == 0
    out = capsys.readouterr().out
    assert f"warning: policy folder `{folder}` belongs to no tenant{hint}\n" in out


def test_a_tenants_folder_causes_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("default", "ten_" + "a" * 22):
        write(tmp_path, of(ENTRY), f"{folder}/a/a.yaml")
    assert main(["lint", str(tmp_path)]) == 0
    assert main(["lint", str(tmp_path), "--tenant", "ten_" + "a" * 22]) == 0
    assert "belongs to no tenant" not in capsys.readouterr().out


def test_one_file_can_be_linted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path, of(ENTRY), "a/good.yaml"), write(tmp_path, "", "a/bad.yaml")
    assert main(["lint", str(good)]) == 0
    assert main(["lint", str(bad)]) == 1
    assert f"error: {bad}: is empty" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["lint"], ["lint", "/nowhere/at/all"], ["other"], ["lint", ".", "--strange"]]
)
def test_bad_arguments_exit_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2


def test_the_module_is_the_command(tmp_path: Path) -> None:
    write(tmp_path, "policies:")
    ran = subprocess.run(
        [sys.executable, "-m", "deploy.commands.policy", "lint", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout == (
        "error: default/lending/loans.yaml:1: policies: must be a list, but nothing follows the "
        "key: is the file cut off? `[]` means none\n"
    )


RESTRICTED = BODY | {
    "name": "no-payroll",
    "denied_sources": ["pay*"],
    "denied_tasks": ["export"],
    "permitted_agent_ids": ["agt_1"],
}


def escaped(**changes: Any) -> list[str]:
    """The warnings of denials that a call without an agent escapes, beside this other policy."""
    bodies = (RESTRICTED, BODY | {"allowed_sources": ["payroll"]} | changes)
    found = lint([Definition("t/a/a.yaml", line, body) for line, body in enumerate(bodies)])
    return [each.key for each in found if "`require_agent_id`" in each.message]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, ["denied_sources", "denied_tasks"]),
        ({"allowed_sources": ["handbook"]}, ["denied_tasks"]),
        ({"denied_sources": ["p*"], "denied_tasks": ["export"]}, []),
        ({"allowed_tasks": ["report"]}, ["denied_sources"]),
        ({"permitted_agent_ids": ["agt_2"]}, []),
        ({"agent_role": "other"}, []),
    ],
)
def test_a_denial_that_a_call_without_an_agent_escapes_is_named(
    changes: dict[str, object], keys: list[str]
) -> None:
    assert sorted(escaped(**changes)) == keys
