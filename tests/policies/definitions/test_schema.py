"""The JSON Schema of policy files accepts what the loader accepts, and nothing else."""

from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
import pytest
import yaml

from policies.definitions.definition import LoadError
from policies.definitions.load import load_file
from policies.definitions.policy_form import FIELDS, POLICY_FILE
from tests.policies.definitions.policy_directory import ENTRY, of
from tests.support.mutation import VALUES, mutated
from tests.support.properties import few

SCHEMA = jsonschema_rs.Draft202012Validator(POLICY_FILE.schema())
NAMES = ("contracts", "kb-*", "?", "é 日本", "no", "12", "a: b", "x" * 256, "'\"#")


def policy(random: Random, number: int) -> dict[str, Any]:
    """A policy that the loader accepts, with some of the keys that it may leave out."""

    def names() -> list[str]:
        return random.choices(NAMES, k=random.randint(0, 3))

    required = {
        "name": f"{random.choice(NAMES)[:200]} {number}",
        "agent_role": random.choice(NAMES),
        "allowed_sources": names(),
        "max_sensitivity": random.choice(["low", "medium", "high", "critical"]),
    }
    optional = {
        "denied_sources": names(),
        "allowed_tasks": names(),
        "denied_tasks": names(),
        "session_ttl_minutes": random.choice([1, 60, 9_999_999, None]),
        "permitted_agent_ids": names(),
        "industry": random.choice([*NAMES, None]),
        "process_group": random.choice([*NAMES, None]),
    }
    assert {*required, *optional} == {*FIELDS}
    chosen = {key: each for key, each in optional.items() if random.random() < 0.5}
    members = [*required.items(), *chosen.items()]
    random.shuffle(members)
    return dict(members)


def accepted(path: Path) -> bool:
    try:
        load_file(path)
    except LoadError as error:
        # Two entries of one name: a schema can't compare them.
        return all("is already used at" in fault.message for fault in error.faults)
    return True


@pytest.mark.deep(stands_in="test_the_schema_accepts_what_the_loader_accepts_of_a_few_files")
def test_the_schema_accepts_what_the_loader_accepts(tmp_path: Path) -> None:
    accept_the_same(few(2000), tmp_path / "loans.yaml")


def test_the_schema_accepts_what_the_loader_accepts_of_a_few_files(tmp_path: Path) -> None:
    accept_the_same(40, tmp_path / "loans.yaml")


def accept_the_same(files: int, path: Path) -> None:
    """Compares schema and loader by so many random files."""
    random = Random(16)
    seen = {True: 0, False: 0}
    for _ in range(files):
        file = {"policies": [policy(random, number) for number in range(random.randint(0, 3))]}
        changed = mutated(file, random, random.choice([0, 1, 1, 2]), (*FIELDS, "policies"))
        path.write_text(yaml.safe_dump(changed, sort_keys=False))
        taken = accepted(path)
        assert SCHEMA.is_valid(changed) is taken, path.read_text()
        seen[taken] += 1
    assert min(seen.values()) > sum(seen.values()) / 5


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("key", FIELDS)
def test_every_key_accepts_the_same_values_in_schema_and_loader(
    tmp_path: Path, key: str, value: Any
) -> None:
    entry = {**yaml.safe_load(ENTRY), key: value}
    path = tmp_path / "loans.yaml"
    path.write_text(yaml.safe_dump({"policies": [entry]}))
    assert SCHEMA.is_valid({"policies": [entry]}) is accepted(path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("name: reads\n", "name: reads\nname: reads\n"), "duplicate key"),
        (("max_sensitivity: high", "max_sensitivity: high\nsession_ttl_minutes: 1_0"), "must be"),
        (("max_sensitivity: high", "max_sensitivity: high\nsession_ttl_minutes: 0x10"), "must be"),
        (("max_sensitivity: high", "max_sensitivity: high\nsession_ttl_minutes: 5.0"), "must be"),
        (("[contracts]", "&a [contracts]\nallowed_tasks: *a"), "aliases are not supported"),
        (("[contracts]", "!!seq [contracts]"), "tags are not supported"),
        (("max_sensitivity: high", "max_sensitivity: high\n\n# " + "x" * 1_048_576), "larger than"),
    ],
)  # fmt: skip
def test_some_faults_can_only_be_found_by_the_loader(
    tmp_path: Path, change: tuple[str, str], fault: str
) -> None:
    """The list in `policies/README.md`: how a value is written, not what it is."""
    path = tmp_path / "loans.yaml"
    assert change[0] in ENTRY
    path.write_text(of(ENTRY.replace(*change)))
    assert SCHEMA.is_valid(yaml.safe_load(path.read_text()))
    with pytest.raises(LoadError, match=fault):
        load_file(path)


def test_two_policies_of_one_name_are_beyond_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "loans.yaml"
    path.write_text(of(ENTRY, ENTRY))
    assert SCHEMA.is_valid(yaml.safe_load(path.read_text()))
    with pytest.raises(LoadError, match="already used"):
        load_file(path)
