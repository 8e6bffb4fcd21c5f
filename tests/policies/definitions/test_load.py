"""Loading policy files: what is accepted, and the faults, with file and line, of what is not."""

import os
import textwrap
from pathlib import Path

import pytest
import yaml

import policies.definitions.load as load_module
from policies.definitions.definition import FIELDS, Definition, DefinitionFault, LoadError
from policies.definitions.load import MAX_FILE, load_file, load_tenant
from policies.definitions.model import Policy
from policies.definitions.policy_files import FORM, strays, tenants

ENTRY = """\
name: reads
agent_role: analyst
allowed_sources: [contracts]
denied_sources: []
max_sensitivity: high
"""


def write(root: Path, text: str | bytes, at: str = "default/lending/loans.yaml") -> Path:
    path = root / at
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(textwrap.dedent(text).encode() if isinstance(text, str) else text)
    return path


def of(*entries: str) -> str:
    """A file of entries, each a block of lines."""
    items = (textwrap.indent(textwrap.dedent(entry), "    ").strip() for entry in entries)
    return "policies:\n" + "".join(f"  - {item}\n" for item in items)


def faults(root: Path, tenant: str = "default") -> list[str]:
    with pytest.raises(LoadError) as raised:
        load_tenant(root, tenant)
    assert str(raised.value) == "\n".join(map(str, raised.value.faults))
    return [str(fault) for fault in raised.value.faults]


def complaint(root: Path, text: str | bytes) -> str:
    """The one fault of a tenant with this one file, without the file's name."""
    write(root, text)
    (only,) = faults(root)
    assert only.startswith("default/lending/loans.yaml")
    return only.removeprefix("default/lending/loans.yaml").removeprefix(":")


@pytest.fixture(params=["libyaml", "python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers that an installation may have; what they accept must be the same."""
    if request.param == "python":
        monkeypatch.setattr(load_module, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML has no libyaml")
    return str(request.param)


# ------------------------------------------------------------------------------- what is read


def test_a_definition_has_every_field_and_its_place(tmp_path: Path, loader: str) -> None:
    write(tmp_path, "# Loans.\n" + of(ENTRY))
    assert load_tenant(tmp_path, "default") == [
        Definition(
            "default/lending/loans.yaml",
            3,
            {
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
            },
        )
    ]


def test_everything_that_an_entry_may_say_is_read(tmp_path: Path, loader: str) -> None:
    text = """\
    name: "a: name with \\"quotes\\" and é"
    agent_role: 'loan/underwriter'
    allowed_sources:
      - "kb-*"
      - >-
        folded
        source
    denied_sources: [payroll, "no", '12', "null", "*"]
    max_sensitivity: critical
    allowed_tasks: [report]
    denied_tasks: [export]
    session_ttl_minutes: 30
    permitted_agent_ids: ["spiffe://a/*"]
    industry: banking
    process_group: retail
    """
    write(tmp_path, of(text))
    (definition,) = load_tenant(tmp_path, "default")
    assert definition.body == {
        "name": 'a: name with "quotes" and é',
        "agent_role": "loan/underwriter",
        "allowed_sources": ["kb-*", "folded source"],
        "denied_sources": ["payroll", "no", "12", "null", "*"],
        "max_sensitivity": "critical",
        "allowed_tasks": ["report"],
        "denied_tasks": ["export"],
        "session_ttl_minutes": 30,
        "permitted_agent_ids": ["spiffe://a/*"],
        "industry": "banking",
        "process_group": "retail",
    }
    policy = Policy.from_wire({"policy_id": "pol_1", "version": 1, **definition.body})
    assert policy.to_wire() == {"policy_id": "pol_1", "version": 1, **definition.body}
    assert tuple(definition.body) == FIELDS


def test_null_scalars_are_absent_ones(tmp_path: Path, loader: str) -> None:
    write(tmp_path, of(ENTRY + "session_ttl_minutes: ~\nindustry: null\nprocess_group:\n"))
    (definition,) = load_tenant(tmp_path, "default")
    body = definition.body
    assert (body["session_ttl_minutes"], body["industry"], body["process_group"]) == (
        None, "lending", "loans",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["policies: []", "---\npolicies: []\n...\n", "\ufeffpolicies: []", "policies: [] # none\r\n",
     "{policies: []}", '"policies": []', "!!str policies: []", "policies: &anchor []"],
)  # fmt: skip
def test_a_file_may_say_that_there_are_no_policies(tmp_path: Path, loader: str, text: str) -> None:
    write(tmp_path, text.encode())
    assert load_tenant(tmp_path, "default") == []


def test_definitions_come_in_order_of_file_and_line(tmp_path: Path) -> None:
    names = iter("dbac")
    for at in ("t/b/b.yaml", "t/b/a.yaml", "t/a/z.yaml"):
        write(tmp_path, of(ENTRY.replace("reads", next(names))), at)
    write(tmp_path, of(ENTRY.replace("reads", "y"), ENTRY.replace("reads", "x")), "t/c/c.yaml")
    found = [(each.file, each.line, each.body["name"]) for each in load_tenant(tmp_path, "t")]
    assert found == [
        ("t/a/z.yaml", 2, "a"), ("t/b/a.yaml", 2, "b"), ("t/b/b.yaml", 2, "d"),
        ("t/c/c.yaml", 2, "y"), ("t/c/c.yaml", 7, "x"),
    ]  # fmt: skip


def test_industry_and_process_group_come_from_the_path(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "t/health care/claims.v2.yaml")
    (definition,) = load_tenant(tmp_path, "t")
    assert definition.body["industry"] == "health care"
    assert definition.body["process_group"] == "claims.v2"


def test_text_is_kept_as_it_is_written(tmp_path: Path, loader: str) -> None:
    write(tmp_path, of(ENTRY.replace("[contracts]", '["cafe\\u0301", "caf\\u00e9", " a ", "😀"]')))
    (definition,) = load_tenant(tmp_path, "default")
    assert definition.body["allowed_sources"] == ["cafe\u0301", "caf\u00e9", " a ", "😀"]


def test_tenants_are_read_apart(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "good/a/a.yaml")
    write(tmp_path, "policies: no", "bad/a/a.yaml")
    assert tenants(tmp_path) == ["bad", "good"]
    assert len(load_tenant(tmp_path, "good")) == 1
    assert len(faults(tmp_path, "bad")) == 1


def test_a_name_may_stand_once_for_each_tenant(tmp_path: Path) -> None:
    for tenant in ("one", "two"):
        write(tmp_path, of(ENTRY), f"{tenant}/a/a.yaml")
        assert len(load_tenant(tmp_path, tenant)) == 1


# ------------------------------------------------------------------------------- complaints


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name: reads\n", ""), "2: name: is required"),
        (("agent_role: analyst\n", ""), "2: agent_role: is required"),
        (("allowed_sources: [contracts]\n", ""), "2: allowed_sources: is required"),
        (("denied_sources: []\n", ""), "2: denied_sources: is required"),
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
        (("[contracts]", ""), "4: allowed_sources: must be a list of strings; write `[]`"),
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
        ("policies:", "1: policies: must be a list; write `[]` for none"),
        ("policies: {}", "1: policies: must be a list"),
        ("policies: reads", "1: policies: must be a list"),
        ("policies: [reads]", "1: policies: each entry must be a mapping"),
        ("policies:\n  -\n", "2: policies: each entry must be a mapping"),
        ("policies:\n  - []\n", "2: policies: each entry must be a mapping"),
        ("policies: []\nversion: 1", "2: version: unknown key; expected policies"),
        ("policies: []\npolicies: []", "2: policies: duplicate key; the first is on line 1"),
        ("policies: []\n---\npolicies: []", "2: contains a second document"),
        ("policies: []\n--- \n", "2: contains a second document"),
        ("policies: [", "is not YAML: "),
        ("policies:\n\t- a", "2: is not YAML: "),
        ("a: b: c", "1: is not YAML: mapping values are not allowed"),
        ("policies: 'open", "is not YAML: "),
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


def test_a_mapping_that_lacks_policies_says_so(tmp_path: Path) -> None:
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
        ["t/b/b.yaml:2", "denied_sources"],
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


# ------------------------------------------------------------------------------- hostile files


def test_a_billion_laughs_file_is_refused(tmp_path: Path, loader: str) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert "2: uses the alias `*a0`" in complaint(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    "piece", ["[", "{a: ", "- ", "? ", "a:\n ", "!", "&a ", "'", '"', "|\n", "%"]
)
def test_a_mebibyte_of_one_token_is_refused_without_a_crash(
    tmp_path: Path, loader: str, piece: str
) -> None:
    write(tmp_path, (piece * MAX_FILE)[:MAX_FILE].encode())
    assert faults(tmp_path)


def test_a_file_of_a_mebibyte_is_read_and_a_larger_one_refused(tmp_path: Path) -> None:
    write(tmp_path, b"policies: []\n" + b"#" * (MAX_FILE - 13))
    assert load_tenant(tmp_path, "default") == []
    reported = complaint(tmp_path, b"policies: []\n" + b"#" * (MAX_FILE - 12))
    assert reported == " is larger than 1048576 bytes"


def test_checking_a_file_with_thousands_of_unknown_keys_stops_early(tmp_path: Path) -> None:
    write(tmp_path, "".join(f"allowed_source{n}: 1\n" for n in range(40_000)))
    assert len(faults(tmp_path)) == 101


# ------------------------------------------------------------------------------- the directory


@pytest.mark.parametrize(
    "at",
    ["t/a/.hidden.yaml", "t/a/.a.yaml.swp", "t/a/a.yaml~", "t/a/#a.yaml#", "t/a/.#a.yaml",
     "t/a/a.yaml.bak", "t/a/4913", "t/a/README.md", "t/a/a.json", "t/README.md", "t/.git/a.yaml",
     "t/a/.git/a.yaml", "t/..data/a/a.yaml", ".git/a/a.yaml", "t/a/notes/readme.txt", "notes.md",
     "t/.a.yaml"],
)  # fmt: skip
def test_files_that_editors_and_other_tools_leave_are_ignored(tmp_path: Path, at: str) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, b"\xff not: [yaml", at)
    assert tenants(tmp_path) == ["t"]
    assert len(load_tenant(tmp_path, "t")) == 1
    assert strays(tmp_path) == []


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("t/a/b.yml", "t/a/b.yml: must end in `.yaml`"),
        ("t/a/b.YAML", "t/a/b.YAML: must end in `.yaml`"),
        ("t/b.yaml", f"t/b.yaml: is directly under the tenant's folder; {FORM}"),
        ("t/b.yml", "t/b.yml: is directly under the tenant's folder"),
        ("t/a/b/c.yaml", "t/a/b/c.yaml: is one folder too deep; policy files are"),
    ],
)  # fmt: skip
def test_a_misplaced_policy_file_is_a_fault(tmp_path: Path, at: str, said: str) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, of(ENTRY.replace("reads", "b")), at)
    (reported,) = faults(tmp_path, "t")
    assert reported.startswith(said)


def test_a_policy_file_outside_a_tenant_folder_is_a_stray(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, of(ENTRY), "loans.yaml")
    (stray,) = strays(tmp_path)
    assert str(stray) == f"loans.yaml: belongs to no tenant: {FORM}"
    assert tenants(tmp_path) == ["t"]


def test_a_folder_whose_name_is_not_an_identifier_is_a_stray(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "a\nb/a/a.yaml")
    (tmp_path / os.fsdecode(b"c\xff") / "a").mkdir(parents=True)
    assert tenants(tmp_path) == []
    assert [fault.file for fault in strays(tmp_path)] == ["a\\nb", "c\\udcff"]


def test_a_path_without_a_valid_industry_is_a_fault(tmp_path: Path) -> None:
    write(tmp_path, "policies: []", "t/a\nb/a.yaml")
    (reported,) = faults(tmp_path, "t")
    assert "`a\\nb` in the path must not contain control characters" in reported


@pytest.mark.parametrize("missing", ["nowhere", "file"])
def test_a_missing_directory_is_an_error_not_an_empty_tenant(tmp_path: Path, missing: str) -> None:
    (tmp_path / "file").write_text("")
    for ask in (tenants, lambda root: load_tenant(root, "t")):
        with pytest.raises(LoadError):
            ask(tmp_path / missing)


@pytest.mark.parametrize(
    "tenant", ["t", "", ".", "..", "a/b", "../t", "/", "\x00", ".hidden", "😀"]
)
def test_a_tenant_without_a_folder_has_no_policies(tmp_path: Path, tenant: str) -> None:
    write(tmp_path, of(ENTRY), "root/other/a/a.yaml")
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    write(tmp_path, of(ENTRY), "root/.hidden/a/a.yaml")
    assert load_tenant(tmp_path / "root", tenant) == []


def test_a_link_out_of_the_tenants_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, of(ENTRY), "other/a/a.yaml")
    secret = write(tmp_path, "secret: value", "secret.yaml")
    (root / "t/a").mkdir(parents=True)
    (root / "t/a/secret.yaml").symlink_to(secret)
    (root / "t/a/other.yaml").symlink_to(root / "other/a/a.yaml")
    (root / "t/b").symlink_to(root / "other/a")
    assert faults(root, "t") == [
        "t/a/other.yaml: is a link out of the tenant's folder",
        "t/a/secret.yaml: is a link out of the tenant's folder",
        "t/b/a.yaml: is a link out of the tenant's folder",
    ]


def test_a_tenants_folder_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "elsewhere/a/a.yaml")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/t").symlink_to(tmp_path / "elsewhere")
    assert faults(tmp_path / "root", "t") == ["t: is a link out of the policy directory"]


def test_links_within_the_tenants_folder_are_followed(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: `..data` is a link, and every file a link into it."""
    write(tmp_path, of(ENTRY), "t/a/..2026_01_01/loans.yaml")
    (tmp_path / "t/a/..data").symlink_to("..2026_01_01")
    (tmp_path / "t/a/loans.yaml").symlink_to("..data/loans.yaml")
    assert [each.file for each in load_tenant(tmp_path, "t")] == ["t/a/loans.yaml"]
    root = tmp_path / "whole"
    write(root, of(ENTRY), "..2026/t/a/loans.yaml")
    (root / "..data").symlink_to("..2026")
    (root / "t").symlink_to("..data/t")
    assert tenants(root) == ["t"]
    assert [each.file for each in load_tenant(root, "t")] == ["t/a/loans.yaml"]


def test_dangling_and_circular_links_are_faults(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    (tmp_path / "t/a/gone.yaml").symlink_to("gone-target.yaml")
    (tmp_path / "t/a/loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "t/a/up").symlink_to("..")
    reported = faults(tmp_path, "t")
    assert "t/a/gone.yaml: is a link to a file that does not exist" in reported
    assert any(each.startswith("t/a/loop.yaml: ") for each in reported)
    assert len(reported) == 2


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as error:
        load_file(tmp_path / "none.yaml")
    assert [each.message for each in error.value.faults] == ["does not exist"]
    with pytest.raises(LoadError) as error:
        load_file(tmp_path)
    assert [each.message for each in error.value.faults] == ["is a directory"]


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "t/a").mkdir(parents=True)
    os.mkfifo(tmp_path / "t/a/pipe.yaml")
    assert faults(tmp_path, "t") == ["t/a/pipe.yaml: is not a regular file"]


@pytest.mark.parametrize(
    ("method", "at"), [("read_bytes", "t/a/a.yaml"), ("iterdir", "t/a"), ("iterdir", "t")]
)
def test_an_unreadable_file_or_folder_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, at: str
) -> None:
    """A disk that fails, or a mode that forbids: a fake, since root may read everything."""
    write(tmp_path, of(ENTRY), "t/a/a.yaml")
    real = getattr(Path, method)

    def failing(path: Path) -> object:
        if path == tmp_path / at:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, method, failing)
    assert faults(tmp_path, "t") == [f"{at}: can't be read: Permission denied"]


def test_one_file_can_be_loaded_on_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, of(ENTRY), "anywhere/loans.yaml")
    (definition,) = load_file(path)
    assert definition.body["industry"] == "anywhere"
    write(tmp_path, of(ENTRY, ENTRY), "anywhere/loans.yaml")
    with pytest.raises(LoadError, match="is already used at"):
        load_file(path)
