"""What a file of guardrails may say, and what is refused, with file and line."""

from pathlib import Path

import pytest

from policies.definitions.definition import LoadError
from policies.definitions.guardrail import MAX_GUARDRAILS, Guardrail
from policies.definitions.load import (
    load_definitions,
    load_guardrail_file,
    load_guardrails,
    load_tenant,
)
from policies.definitions.policy_files import policy_tests, strays
from tests.policies.definitions.policy_directory import ENTRY, of, write

EXAMPLE = """\
guardrails:
  - name: payroll-is-hr-only
    never: {sources: ["payroll*", "salaries"], except_roles: [hr_analyst]}
  - name: nothing-critical-without-a-task
    never: {levels: [critical], tasks: [absent]}
  - name: auditors-can-read-the-handbook
    always: {roles: [auditor], sources: [handbook], levels: [low]}
"""
AT = "default/guardrails.yaml"


def refused(root: Path) -> list[str]:
    with pytest.raises(LoadError) as error:
        load_definitions(root, "default")
    return [str(fault) for fault in error.value.faults]


def test_guardrails_are_read_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path, EXAMPLE, AT)
    found = load_guardrails(tmp_path, "default")
    assert [(each.file, each.line) for each in found] == [(AT, 2), (AT, 4), (AT, 6)]
    assert [each.guardrail for each in found] == [
        Guardrail(
            "payroll-is-hr-only",
            "never",
            sources=("payroll*", "salaries"),
            except_roles=("hr_analyst",),
        ),
        Guardrail(
            "nothing-critical-without-a-task", "never", levels=("critical",), tasks=("absent",)
        ),
        Guardrail(
            "auditors-can-read-the-handbook",
            "always",
            roles=("auditor",),
            sources=("handbook",),
            levels=("low",),
        ),
    ]
    assert [Guardrail.from_wire(each.guardrail.to_wire()) for each in found] == [
        each.guardrail for each in found
    ]


def test_a_tenant_without_the_file_has_no_guardrails(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY))
    assert load_guardrails(tmp_path, "default") == load_guardrails(tmp_path, "other") == []
    write(tmp_path, "guardrails: []", AT)
    assert load_definitions(tmp_path, "default").guardrails == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("name: g", "2: needs `never` or `always`"),
        ("{name: g, never: {}, always: {roles: [r]}}", "2: has both `never` and `always`"),
        ("never: {}", "2: name: is required"),
        ("{name: '', never: {}}", "2: name: "),
        ("{name: 7, never: {}}", "2: name: must be a string; YAML reads `7` as a number"),
        ("{name: g, nevr: {}}", "2: nevr: unknown key; did you mean `never`?"),
        ("g", "2: guardrails: each entry must be a mapping"),
        ("{name: g, never: }", "2: never: must be a mapping of roles, except_roles"),
        ("{name: g, never: {source: [a]}}", "2: source: unknown key; did you mean `sources`?"),
        ("{name: g, never: {sources: a}}", "2: sources: must be a list of strings, not `a`"),
        ("{name: g, never: {sources: }}", "2: sources: must be a list of strings, but it is empty"),
        ("{name: g, never: {sources: []}}", "2: sources: must not be empty; leave it out for all"),
        ("{name: g, never: {sources: [no]}}", "2: sources: must be a string; YAML reads `no`"),
        ("{name: g, never: {levels: [hgh]}}", "2: levels: must be one of `low`, `medium`"),
        ("{name: g, never: {tasks: ['pay*']}}", "2: tasks: must not contain `*` or `?`, but"),
        ("{name: g, always: {sources: [a]}}", "2: roles: is required"),
        ("{name: g, always: {roles: ['a*']}}", "2: roles: must not contain `*` or `?`, but is"),
    ],
)  # fmt: skip
def test_an_unclear_guardrail_is_refused(tmp_path: Path, entry: str, said: str) -> None:
    write(tmp_path, f"guardrails:\n  - {entry}\n", AT)
    fault = refused(tmp_path)[0]
    assert fault.startswith(f"{AT}:{said}")


def test_a_prohibition_accepts_wildcards_and_absent_values(tmp_path: Path) -> None:
    rule = "{roles: ['r*'], except_roles: ['ra?'], agents: [absent, 'a*'], sources: ['s?']}"
    write(tmp_path, f"guardrails:\n  - {{name: g, never: {rule}}}\n", AT)
    ((_, _, found),) = load_guardrails(tmp_path, "default")
    assert found.agents == ("absent", "a*")


def test_every_fault_of_every_file_is_reported_together(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY.replace("analyst", "[]")))
    write(
        tmp_path,
        """\
        guardrails:
          - {name: g, never: {}}
          - {name: g, never: {}}
          - {name: h, never: {levels: [none]}}
        """,
        AT,
    )
    found = refused(tmp_path)
    assert found[:2] == [
        f"{AT}:3: name: `g` is already used at {AT}:2",
        f"{AT}:4: levels: must be one of `low`, `medium`, `high`, `critical`, not `none`",
    ]
    assert found[2].startswith("default/lending/loans.yaml:3: agent_role: ")
    assert len(load_tenant_or_none(tmp_path)) == 0


def load_tenant_or_none(root: Path) -> list[object]:
    try:
        return list(load_tenant(root, "default"))
    except LoadError:
        return []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; `guardrails: []` defines no guardrails"),
        ("guardrails:", "guardrails: must be a list, but nothing follows the key: is the"),
        ("policies: []", "policies: unknown key; expected guardrails"),
        ("guardrails: [*a]", "uses the alias `*a`; aliases are not supported"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_a_file_that_is_something_else_is_refused(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    path = write(tmp_path, text, AT)
    assert said in refused(tmp_path)[0]
    with pytest.raises(LoadError, match=str(path)):
        load_guardrail_file(path)


def test_the_number_of_guardrails_is_limited(tmp_path: Path) -> None:
    entries = "".join(f"  - {{name: g{at}, never: {{}}}}\n" for at in range(MAX_GUARDRAILS + 1))
    write(tmp_path, f"guardrails:\n{entries}", AT)
    assert refused(tmp_path) == [f"{AT}:1: guardrails: must have at most 200 entries"]


def test_a_link_out_of_the_tenants_folder_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path, "guardrails: []", "outside.yaml")
    write(tmp_path, of(ENTRY), "root/default/lending/loans.yaml")
    (tmp_path / "root" / AT).symlink_to(outside)
    with pytest.raises(LoadError, match="is a link out of the tenant's folder"):
        load_guardrails(tmp_path / "root", "default")


def test_a_link_that_leads_nowhere_is_a_fault_and_not_no_guardrails(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY))
    (tmp_path / AT).symlink_to("gone.yaml")
    assert refused(tmp_path) == [f"{AT}: is a link to a file that does not exist"]


def test_the_loader_takes_neither_guardrails_nor_tests_for_policies(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY))
    write(tmp_path, EXAMPLE, AT)
    for at in ("all_test.yaml", "lending/loans_test.yaml", "lending/deep/er/x_test.yaml"):
        write(tmp_path, "tests: []", f"default/{at}")
    found = load_definitions(tmp_path, "default")
    assert len(found.policies) == 1
    assert len(found.guardrails) == 3
    assert strays(tmp_path) == []
    assert [str(path.relative_to(tmp_path)) for path in policy_tests(tmp_path, "default")] == [
        "default/all_test.yaml",
        "default/lending/deep/er/x_test.yaml",
        "default/lending/loans_test.yaml",
    ]


def test_tests_are_found_through_links_inside_the_folder_only(tmp_path: Path) -> None:
    write(tmp_path, "tests: []", "root/t/..2026/a_test.yaml")
    (tmp_path / "root/t/..data").symlink_to("..2026")
    (tmp_path / "root/t/a_test.yaml").symlink_to("..data/a_test.yaml")
    (tmp_path / "root/t/lending").mkdir()
    (tmp_path / "root/t/lending/up").symlink_to("..")
    root = tmp_path / "root"
    assert policy_tests(root, "t") == [root / "t/a_test.yaml"]
    assert policy_tests(root, "other") == []
    (root / "t/b_test.yaml").symlink_to(write(tmp_path, "tests: []", "b_test.yaml"))
    with pytest.raises(LoadError, match="is a link out of the tenant's folder"):
        policy_tests(root, "t")


def test_misplaced_guardrails_are_faults(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY))
    write(tmp_path, EXAMPLE, "default/guardrails.yml")
    (fault,) = refused(tmp_path)
    assert fault.endswith("and a tenant's guardrails are in <tenant_id>/guardrails.yaml")
    write(tmp_path, EXAMPLE, "guardrails.yaml")
    assert [fault.file for fault in strays(tmp_path)] == ["guardrails.yaml"]
