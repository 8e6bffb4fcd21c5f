"""The faults of policy files, with file and line."""

from pathlib import Path

import pytest

from policies.definitions.definition import DefinitionFault
from tests.policies.definitions.policy_directory import ENTRY, complaint, faults, of, write

CUT_OFF = ", but nothing follows the key: is the file cut off? `[]` means none"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name: reads\n", ""), "2: name: is required"),
        (("agent_role: analyst\n", ""), "2: agent_role: is required"),
        (("allowed_sources: [contracts]\n", ""), "2: allowed_sources: is required"),
        (("max_sensitivity: high\n", ""), "2: max_sensitivity: is required"),
        (("name: reads", "name:"), "2: name: must be a string, but it is empty"),
        (("name: reads", "name: ~"), "so quote it"),
        (("name: reads", 'name: ""'), "2: name: must have 1 to 256 characters, has 0"),
        (("name: reads", f"name: {'x' * 257}"), "2: name: must have 1 to 256 characters, has 257"),
        (("name: reads", 'name: "a\\nb"'), "2: name: must not contain control characters"),
        (("name: reads", "name: 12"), "2: name: must be a string; YAML reads `12` as a number"),
        (("name: reads", "name: 1.5"), "reads `1.5` as a number, so quote it"),
        (("name: reads", "name: no"), "must be a string; YAML reads `no` as a truth value"),
        (("name: reads", "name: 2026-01-01"), "reads `2026-01-01` as a date, so quote it"),
        (("name: reads", "name: [reads]"), "2: name: must be a string, not a list"),
        (("name: reads", "name: {a: b}"), "2: name: must be a string, not a mapping"),
        (("analyst", "yes"), "3: agent_role: must be a string; YAML reads `yes` as a truth value"),
        (("[contracts]", "contracts"), "4: allowed_sources: must be a list of strings; write `[]`"),
        (("[contracts]", ""), f"4: allowed_sources: must be a list of strings{CUT_OFF}"),
        (("[contracts]", "{a: b}"), "4: allowed_sources: must be a list of strings"),
        (("[contracts]", "[1]"), "4: allowed_sources: must be a string; YAML reads `1`"),
        (("[contracts]", "[~]"), "4: allowed_sources: must be a string"),
        (("[contracts]", '[""]'), "4: allowed_sources: must have 1 to 256 characters, has 0"),
        (("[contracts]", "[[a]]"), "4: allowed_sources: must be a string, not a list"),
        (("denied_sources: []", "denied_sources: payroll"), "5: denied_sources: must be a list of"),
        (("denied_sources: []", "denied_sources: ~"), "5: denied_sources: must be a list of"),
        (("high", "severe"), "6: max_sensitivity: must be one of `low`, `medium`, `high`, `cri"),
        (("high", "severe"), "`critical`, not `severe`"),
        (("high", "High"), "6: max_sensitivity: must be one of"),
        (("high", "3"), "`high`, `critical`; YAML reads `3` as a number"),
        (("high", "[high]"), "`critical`, not a list"),
        (("high", "high\nsession_ttl_minutes: 0"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: -5"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: true"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: 1.5"), "7: session_ttl_minutes: must be a whole"),
        (("high", 'high\nsession_ttl_minutes: "5"'), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: 1:30"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: 0x10"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: 010"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: 1_0"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nsession_ttl_minutes: 10000000"), "must be a whole number from 1 to"),
        (("high", f"high\nsession_ttl_minutes: {'9' * 5000}"), "must be a whole number from 1 to"),
        (("high", "high\nsession_ttl_minutes: [5]"), "7: session_ttl_minutes: must be a whole"),
        (("high", "high\nallowed_tasks: report"), "7: allowed_tasks: must be a list of strings"),
        (("high", "high\npermitted_agent_ids:"), "7: permitted_agent_ids: must be a list of"),
        (("high", "high\nindustry: 5"), "7: industry: must be a string"),
        (("high", 'high\nprocess_group: ""'), "7: process_group: must have 1 to 256 characters"),
        (("high", "high\ndeny_sources: []"), "unknown key; did you mean `denied_sources`?"),
        (("high", "high\nAgent_role: x"), "did you mean `agent_role`?"),
        (("high", "high\nzzz: x"), "7: zzz: unknown key; expected name, agent_role, allowed_s"),
        (("high", "high\nversion: 2"), "7: version: unknown key"),
        (("high", "high\npolicy_id: x"), "7: policy_id: unknown key"),
        (("high", "high\nname: again"), "7: name: duplicate key; the first is on line 2"),
        (("high", "high\n<<: {industry: x}"), "7: <<: unknown key"),
        (("high", "high\n1: x"), "7: 1: unknown key"),
        (("high", 'high\n"a\\nb": x'), "7: unknown key"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line_and_key(
    tmp_path: Path, loader: str, change: tuple[str, str], said: str
) -> None:
    assert change[0] in ENTRY
    assert said in complaint(tmp_path, of(ENTRY.replace(*change)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is empty; `policies: []` defines no policies"),
        ("# nothing\n", " is empty"),
        ("---\n", "must be a mapping with the key `policies`"),
        ("~", "1: must be a mapping with the key `policies`"),
        ("[]", "1: must be a mapping with the key `policies`"),
        ("policies", "1: must be a mapping with the key `policies`"),
        ("policies:", f"1: policies: must be a list{CUT_OFF}"),
        ("policies: ~", "1: policies: must be a list; write `[]` for none"),
        ("policies: {}", "1: policies: must be a list"),
        ("policies: reads", "1: policies: must be a list"),
        ("policies: [reads]", "1: policies: each entry must be a mapping"),
        ("policies:\n  -\n", "2: policies: each entry must be a mapping"),
        ("policies:\n  - []\n", "2: policies: each entry must be a mapping"),
        ("policies: []\nversion: 1", "2: version: unknown key; expected policies"),
        ("policies: []\npolicies: []", "2: policies: duplicate key; the first is on line 1"),
        ("policies: []\n---\npolicies: []", "2: contains a second document"),
        ("policies: []\n--- \n", "2: contains a second document"),
        ("policies: [", "1: is not YAML: "),
        # Cut off in the middle: the line where what was not finished begins.
        ("policies:\n  - name: a\n    max_sens", "3: is not YAML: could not find expected ':'"),
        ("policies:\n  - name: a\n    max_sens\n", "3: is not YAML: could not find expected ':'"),
        ("policies:\n  - name: a\n    of: [b,\n      c\n", "3: is not YAML: "),
        ("policies:\n  - name: 'a\n    of\n", "2: is not YAML: "),
        ("policies:\n  - name: a\n    max_sens\n    of: b\n", "3: is not YAML: "),
        ("policies:\n\t- a", "2: is not YAML: "),
        ("a: b: c", "1: is not YAML: mapping values are not allowed"),
        ("policies: 'open", "1: is not YAML: "),
        ("policies: @x", "1: is not YAML: "),
        ('policies: "\\q"', "1: is not YAML: "),
        ("%YAML 9.9\n---\npolicies: []", "1: is not YAML: "),
        ("? [a]\n: b", "1: has a key that is not a string"),
        ("? {a: b}\n: c", "1: has a key that is not a string"),
        ("policies: &a []\nmore: *a", "2: uses the alias `*a`; aliases are not supported"),
        ("policies:\n - &a {name: x}\n - *a", "3: uses the alias `*a`"),
        ("*a : b", "uses the alias|has a key|is not YAML"),
        ("policies: !!python/object/apply:os.system [ls]", "1: uses the tag"),
        ("policies: !include other.yaml", "1: uses the tag `!include`"),
        ("!!set {a, b}", "1: uses the tag"),
        ("policies: !!omap []", "1: uses the tag"),
        ("policies: [!secret x]", "1: uses the tag `!secret`"),
        ("policies:" + " [" * 12 + "]" * 12, "1: is nested more than 8 levels deep"),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, loader: str, text: str, said: str
) -> None:
    reported = complaint(tmp_path, text)
    assert any(part in reported for part in said.split("|")), reported


def test_a_mapping_without_policies_is_reported_as_incomplete(tmp_path: Path) -> None:
    write(tmp_path, "policy: []")
    assert faults(tmp_path) == [
        "default/lending/loans.yaml:1: policy: unknown key; did you mean `policies`?",
        "default/lending/loans.yaml:1: policies: is required",
    ]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"policies: []\n# \xff\n", "2: is not UTF-8"),
        ("policies: []".encode("utf-16"), "1: is not UTF-8"),
        (b"policies: []\n# \xed\xa0\x80", "2: is not UTF-8"),
        (b"policies: []\n\n# \x00", "3: contains the control character `\\x00`"),
        (b"policies: []\n# \x1b[31m", "2: contains the control character `\\x1b`"),
        (b"\x80", "1: is not UTF-8"),
    ],
)
def test_bytes_that_are_not_text_are_refused(
    tmp_path: Path, loader: str, raw: bytes, said: str
) -> None:
    assert complaint(tmp_path, raw) == said if said[0] != " " else f" {said}"


@pytest.mark.parametrize("escape", ["\\ud800", "\\udfff", "\\U00110000"])
def test_an_escape_that_is_not_a_character_is_refused(
    tmp_path: Path, loader: str, escape: str
) -> None:
    reported = complaint(tmp_path, of(ENTRY.replace("name: reads", f'name: "{escape}"')))
    assert reported.startswith(("2: is not YAML", "2: name: is not Unicode text", " is not YAML"))


def test_all_faults_of_all_files_are_reported_at_once_in_order(tmp_path: Path) -> None:
    write(tmp_path, of("name: a\nagent_role: 1\nmax_sensitivity: x"), "t/b/b.yaml")
    write(tmp_path, "policies: ]", "t/a/a.yaml")
    write(tmp_path, of(ENTRY), "t/c/c.yaml")
    write(tmp_path, of(ENTRY), "t/c/d.yaml")
    reported = faults(tmp_path, "t")
    assert [fault.split(": ")[:2] for fault in reported] == [
        ["t/a/a.yaml:1", "is not YAML"],
        ["t/b/b.yaml:2", "allowed_sources"],
        ["t/b/b.yaml:3", "agent_role"],
        ["t/b/b.yaml:4", "max_sensitivity"],
        ["t/c/d.yaml:2", "name"],
    ]


def test_a_duplicate_name_is_reported_with_both_places(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY, ENTRY.replace("reads", "Reads")), "t/a/a.yaml")
    write(tmp_path, "\n\n" + of(ENTRY), "t/b/b.yaml")
    assert faults(tmp_path, "t") == ["t/b/b.yaml:4: name: `reads` is already used at t/a/a.yaml:2"]


def test_at_most_a_hundred_faults_are_listed(tmp_path: Path) -> None:
    write(tmp_path, of(*["name: x"] * 200))
    reported = faults(tmp_path)
    assert len(reported) == 101
    assert reported[-1].endswith("the file has more faults; only the first 100 are listed")


def test_a_fault_fits_on_one_line(tmp_path: Path) -> None:
    assert str(DefinitionFault("a.yaml", 0, "", "is empty")) == "a.yaml: is empty"
    assert str(DefinitionFault("a.yaml", 3, "", "is odd")) == "a.yaml:3: is odd"
    assert str(DefinitionFault("a.yaml", 3, "name", "is odd")) == "a.yaml:3: name: is odd"
    reported = complaint(tmp_path, of(ENTRY.replace("high", f'"{"x" * 300}\\n\\u2028"')))
    assert "\n" not in reported
    assert len(reported) < 200
