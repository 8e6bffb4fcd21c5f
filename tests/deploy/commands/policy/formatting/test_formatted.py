"""What `sluice policy fmt` writes: the same policies, the same comments at the same keys, in one
layout. Over generated files in many styles, and by examples."""

import json
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any

import pytest
import yaml

from deploy.commands.policy.fmt import Unformattable, attach, formatted
from deploy.commands.policy.layout import Collection, Entry, parse
from deploy.commands.policy.schema import schema
from policies.definitions.definition import LoadError
from policies.definitions.load import load_file
from policies.definitions.policy_form import FIELDS
from tests.deploy.commands.policy.formatting.written import Writer
from tests.policies.definitions.test_schema import policy
from tests.policies.test_schemas import GUARDRAILS, TESTS
from tests.support.properties import few

POLICY = json.loads(schema("policy"))


def laid_out(text: str) -> str:
    return formatted(text, POLICY, "loans.yaml")


def loaded(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_bytes(text.encode())
    return [each.body for each in load_file(path)]


def places(text: str) -> dict[str, str]:
    """Each comment of a text, and what it is about."""
    tree = parse(text)
    attach(text, tree)
    found: dict[str, str] = {}

    def note(lines: list[str], place: str) -> None:
        found.update({line: place for line in lines if line})

    def visit(value: Any, place: str) -> None:
        if not isinstance(value, Collection):
            return
        for number, entry in enumerate(value.entries):
            here = f"{place}/{number if entry.key is None else entry.key.value}"
            note([*entry.above, *entry.beside], here)
            visit(entry.value, here)
        note(value.below, f"{place}/end")

    visit(tree, "")
    return found


def keeps_its_meaning_and_comments(random: Random, path: Path) -> int:
    """Lays out one generated file; returns how many comments it had."""
    document = {"policies": [policy(random, at) for at in range(random.randint(0, 3))]}
    text = Writer(random).document(document)
    after = laid_out(text)
    assert laid_out(after) == after
    assert loaded(path, after) == loaded(path, text)
    before, now = places(text), places(after)
    assert before.keys() == now.keys()
    for comment, place in before.items():
        # The comment above a member that is now the first stands above its item.
        first = now[comment] + "/name"
        assert now[comment] == place or place.startswith((first, now[comment])), after
    entries = yaml.safe_load(after)["policies"]
    assert all(list(entry) == [key for key in FIELDS if key in entry] for entry in entries)
    # A comment stays behind its line, however long both are.
    lines = [line.partition("  #")[0] for line in after.splitlines()]
    assert all(len(line) <= 100 for line in lines if "," in line and "[" in line)
    assert ("\r\n" in text) == ("\r\n" in after)
    return len(before)


def test_some_generated_files_keep_their_meaning_and_their_comments(tmp_path: Path) -> None:
    random, path = Random(17), tmp_path / "loans.yaml"
    assert sum(keeps_its_meaning_and_comments(random, path) for _ in range(20)) > 40


@pytest.mark.deep(stands_in="test_some_generated_files_keep_their_meaning_and_their_comments")
def test_generated_files_keep_their_meaning_and_their_comments(tmp_path: Path) -> None:
    random, path = Random(16), tmp_path / "loans.yaml"
    comments = sum(keeps_its_meaning_and_comments(random, path) for _ in range(few(2000)))
    assert comments > 500


OTHERS = pytest.mark.parametrize(("kind", "sample"), [("test", TESTS), ("guardrails", GUARDRAILS)])


@OTHERS
def test_some_files_of_other_kinds_keep_their_meaning_and_their_comments(
    kind: str, sample: str
) -> None:
    in_one_layout(kind, sample, 10)


@pytest.mark.deep(stands_in="test_some_files_of_other_kinds_keep_their_meaning_and_their_comments")
@OTHERS
def test_files_of_other_kinds_keep_their_meaning_and_their_comments(kind: str, sample: str) -> None:
    in_one_layout(kind, sample, few(300))


def in_one_layout(kind: str, sample: str, count: int) -> None:
    random, document, form = Random(16), yaml.safe_load(sample), json.loads(schema(kind))
    layouts = set()
    for _ in range(count):
        text = Writer(random).document(document)
        after = formatted(text, form, "file.yaml")
        assert formatted(after, form, "file.yaml") == after
        assert yaml.safe_load(after) == document
        assert places(text).keys() == places(after).keys()
        layouts.add(json.dumps(yaml.safe_load(after)))
    # The keys stand in one order, however they were written.
    assert len(layouts) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """\
            # yaml-language-server: $schema=policy.schema.json
            policies:
            - agent_role: analyst # as registered
              # unique
              name: reads
              denied_sources: []
              allowed_sources:
              - contracts
              - "kb-*"
              # allowed_tasks: [report]

            # second
            - {name: two, agent_role: analyst}
            """,
            """\
            # yaml-language-server: $schema=policy.schema.json
            policies:
              # unique
              - name: reads
                agent_role: analyst  # as registered
                allowed_sources: [contracts, "kb-*"]
                denied_sources: []
                # allowed_tasks: [report]

              # second
              - {name: two, agent_role: analyst}
            """,
        ),
        (
            """\
            policies:
              - name: >-
                  folded
                  text
                allowed_sources: [contracts, # the first
                  # the second
                  payroll]  # both
                denied_sources: [
                  # nothing yet
                ]
            """,
            """\
            policies:
              - name: "folded text"
                allowed_sources:  # both
                  - contracts  # the first
                  # the second
                  - payroll
                # nothing yet
                denied_sources: []
            """,
        ),
        (
            """\
            policies:
              - name: x
                industry:
                allowed_sources:
                - a,b
                - ?c
                - '[d]'
            """,
            """\
            policies:
              - name: x
                allowed_sources: ["a,b", "?c", '[d]']
                industry:
            """,
        ),
        ("policies: [ ]   # none", "policies: []  # none\n"),
        ("--- # start\npolicies: []\n...\n# end\n", "# start\npolicies: []\n# end\n"),
    ],
)  # fmt: skip
def test_each_example_is_formatted_as_expected(before: str, after: str) -> None:
    assert laid_out(dedent(before)) == dedent(after)


def test_a_list_that_does_not_fit_has_an_item_a_line() -> None:
    names = [f"contracts-{number:03}" for number in range(9)]
    text = f"policies:\n  - allowed_sources: [{', '.join(names)}]\n"
    lines = "".join(f"      - {name}\n" for name in names)
    assert laid_out(text) == f"policies:\n  - allowed_sources:\n{lines}"


@pytest.mark.parametrize("text", ["policies: [", "policies: &a []\nb: *a\n", "policies: []\n" * 2])
def test_a_file_that_the_loader_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(LoadError):
        laid_out(text)


@pytest.mark.parametrize("text", ["services: {}\n", "- policies\n", "policies\n"])
def test_another_kind_of_file_is_refused(text: str) -> None:
    with pytest.raises(Unformattable, match="is not a file of the kind `Policies of a tenant`"):
        laid_out(text)


def test_the_scalars_of_an_entry_include_its_key() -> None:
    (entry,) = parse("policies: a\n").entries
    assert isinstance(entry, Entry)
    assert [each.text for each in entry.scalars()] == ["policies", "a"]
