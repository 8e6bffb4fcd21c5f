"""The package's pages match the code: checks, denials, kinds, fields, files and examples."""

import json
import re
from pathlib import Path

import pytest

from policies.checks.order import NAMES
from policies.definitions.load import load_file, load_guardrail_file
from policies.definitions.policy_form import FIELDS
from policies.ground.canonical import encode
from policies.lint import lint
from policies.trail.entry import index_of
from policies.trail.findings import SENTENCES, Reason
from policies.trail.record_schema import RULES

ROOT = Path(__file__).parents[2]
README = (ROOT / "policies/README.md").read_text()
INTERNALS = (ROOT / "policies/INTERNALS.md").read_text()
TRAIL = (ROOT / "policies/trail/README.md").read_text()


def block(page: str, language: str, start: str = "") -> str:
    (found,) = re.findall(rf"```{language}\n({start}.*?)```", page, re.DOTALL)
    return str(found)


@pytest.mark.parametrize("number", range(1, 11))
def test_every_check_has_its_row(number: int) -> None:
    assert f"| {number} | `{NAMES[number - 1]}` |" in README


@pytest.mark.parametrize("check", NAMES[:6])
def test_every_policy_name_of_a_check_is_in_the_readme(check: str) -> None:
    source = (ROOT / f"policies/checks/{check}.py").read_text()
    names = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', source))
    assert names
    (row,) = (line for line in README.splitlines() if re.match(rf"\| \d+ \| `{check}` ", line))
    assert all(f"`{name}`" in row for name in names)


def test_every_kind_and_every_field_is_in_the_readme() -> None:
    assert all(f"`{kind}`" in TRAIL for kind in RULES)
    example = block(README, "yaml", "policies:")
    assert all(f"    {field}:" in example or f"- {field}:" in example for field in FIELDS)


def test_every_file_is_in_the_page_of_internals() -> None:
    files = {path.name for path in (ROOT / "policies").glob("*.py")} - {
        "__init__.py",
        "__main__.py",
    }
    assert {name for name in files if f"`{name}`" not in INTERNALS} == set()


def test_the_example_of_an_entry_is_one() -> None:
    entry = json.loads(block(TRAIL, "json"))
    log = json.loads((ROOT / "tests/vectors/log.json").read_bytes())
    assert encode(entry).decode() == log["entries"][3]["utf8"]
    assert index_of(entry).eid == "event-3"


def test_the_example_of_a_policy_file_is_one(tmp_path: Path) -> None:
    path = tmp_path / "loans.yaml"
    path.write_text(block(README, "yaml", "policies:"))
    definitions = load_file(path)
    assert definitions[0].body["name"] == "underwriting-reads"
    assert lint(definitions) == []


def test_the_example_of_a_guardrail_file_is_one(tmp_path: Path) -> None:
    path = tmp_path / "guardrails.yaml"
    path.write_text(re.findall(r"```yaml\n(guardrails:.*?)```", README, re.DOTALL)[0])
    assert [each.line for each in load_guardrail_file(path)] == [2, 4, 6]


def test_the_packaged_policies_cause_no_warning() -> None:
    for path in sorted((ROOT / "policies/definitions").rglob("*.yaml")):
        assert lint(load_file(path)) == []


def test_the_reasons_of_findings_are_exactly_those_in_the_format_s_page() -> None:
    section = TRAIL.split("## What a verification can find")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", section, re.MULTILINE))
    assert rows == {str(reason): SENTENCES[reason] for reason in Reason}
