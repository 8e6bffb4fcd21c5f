"""Loading policy files: what is read, and what a hostile file can't do."""

from pathlib import Path

import pytest

from policies.definitions.definition import Definition
from policies.definitions.load import MAX_FILE, load_tenant
from policies.definitions.model import Policy
from policies.definitions.policy_files import tenants
from policies.definitions.policy_form import FIELDS
from policies.sets.policy_set import role_document
from tests.policies.definitions.policy_directory import ENTRY, complaint, faults, of, write


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


def test_absent_denied_sources_are_the_same_bytes_as_an_empty_list(
    tmp_path: Path, loader: str
) -> None:
    documents = []
    for text in (ENTRY, ENTRY.replace("denied_sources: []\n", "")):
        write(tmp_path, of(text))
        (found,) = load_tenant(tmp_path, "default")
        body = {**found.body, "policy_id": "p", "version": 1}
        documents.append(role_document([Policy.from_wire(body)]))
        del body["denied_sources"]
        documents.append(role_document([Policy.from_wire(body)]))
    assert len(set(documents)) == 1
    assert b'"denied_sources":[]' in (documents[0] or b"")
    # A misspelt one is found, and not taken for an absent one.
    told = complaint(tmp_path, of(ENTRY.replace("denied_sources", "denied_source")))
    assert told.endswith("denied_source: unknown key; did you mean `denied_sources`?")


def test_every_field_of_an_entry_is_read(tmp_path: Path, loader: str) -> None:
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
def test_a_file_may_contain_no_policies(tmp_path: Path, loader: str, text: str) -> None:
    write(tmp_path, text.encode())
    assert load_tenant(tmp_path, "default") == []


def test_definitions_are_sorted_by_file_and_line(tmp_path: Path) -> None:
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


def test_text_is_kept_as_written(tmp_path: Path, loader: str) -> None:
    write(tmp_path, of(ENTRY.replace("[contracts]", '["cafe\\u0301", "caf\\u00e9", " a ", "😀"]')))
    (definition,) = load_tenant(tmp_path, "default")
    assert definition.body["allowed_sources"] == ["cafe\u0301", "caf\u00e9", " a ", "😀"]


def test_each_tenant_is_read_on_its_own(tmp_path: Path) -> None:
    write(tmp_path, of(ENTRY), "good/a/a.yaml")
    write(tmp_path, "policies: no", "bad/a/a.yaml")
    assert tenants(tmp_path) == ["bad", "good"]
    assert len(load_tenant(tmp_path, "good")) == 1
    assert len(faults(tmp_path, "bad")) == 1


def test_a_name_may_be_used_once_in_each_tenant(tmp_path: Path) -> None:
    for tenant in ("one", "two"):
        write(tmp_path, of(ENTRY), f"{tenant}/a/a.yaml")
        assert len(load_tenant(tmp_path, tenant)) == 1


# ------------------------------------------------------------------------------- hostile files


def test_a_file_of_nested_aliases_is_refused(tmp_path: Path, loader: str) -> None:
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


@pytest.mark.deep(
    stands_in="tests/policies/definitions/test_faults.py::test_at_most_a_hundred_faults_are_listed"
)
def test_checking_a_file_with_thousands_of_unknown_keys_stops_early(tmp_path: Path) -> None:
    write(tmp_path, "".join(f"allowed_source{n}: 1\n" for n in range(40_000)))
    assert len(faults(tmp_path)) == 101
