"""The JSON Schemas of guardrails and tests accept what their loaders accept, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
import pytest
import yaml

from deploy.commands.policy.schema import schema
from policies.definitions.definition import DefinitionFaults, LoadError
from policies.definitions.load import load_guardrail_file, parse_tree
from policies.testing.cases import parse
from tests.support.mutation import mutated
from tests.support.properties import few

GUARDRAILS = """\
guardrails:
  - name: payroll-is-hr-only
    never: {sources: ["payroll*", salaries], except_roles: [hr_analyst]}
  - name: nothing-critical-without-a-task
    never: {levels: [critical], tasks: [absent], agents: [absent, "a*"], roles: ["*"]}
  - name: auditors-can-read-the-handbook
    always: {roles: [auditor], sources: [handbook], levels: [low]}
"""
TESTS = """\
given:
  agents:
    agt_1: {agent_role: underwriter, status: approved, permitted_roles: [a], bound_key_id: null}
  keys: {key_1: {bound_agent_id: agt_1, permitted_roles: []}}
  tenant: {require_agent_id: false, frozen: true}
tests:
  - name: one
    ask: {agent_role: underwriter, agent_id: agt_1, source_id: contracts, sensitivity_level: low}
    expect: {decision: ALLOW, policy_name: reads}
  - ask: {agent_role: teller, source_id: payroll, sensitivity_level: low, task_type: null}
    expect: {decision: DENY, check: source, reason: because}
  - matrix: {agent_role: [a, b], source_id: [c], sensitivity_level: [low, critical]}
    expect_allow: [{agent_role: a, sensitivity_level: low}]
"""
BEYOND = ("is already used at", "`given.keys`", "combinations", "is not in the matrix")
"""Faults that a schema can't find (`policies/README.md`): they compare values with each other."""


def of_guardrails(text: str, path: Path) -> list[str]:
    path.write_text(text)
    try:
        load_guardrail_file(path)
    except LoadError as error:
        return [str(fault) for fault in error.faults]
    return []


def of_tests(text: str, path: Path) -> list[str]:
    faults = DefinitionFaults(path.name)
    tree = parse_tree(text, faults)
    if tree is not None:
        parse(tree, faults)
    return [str(fault) for fault in faults.found]


def keys(value: Any) -> set[str]:
    """The names of all keys in a document."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()


@pytest.mark.parametrize(
    ("kind", "sample", "faults_of"),
    [("guardrails", GUARDRAILS, of_guardrails), ("test", TESTS, of_tests)],
)
def test_the_schema_accepts_everything_that_the_loader_accepts(
    tmp_path: Path, kind: str, sample: str, faults_of: Callable[[str, Path], list[str]]
) -> None:
    judge = jsonschema_rs.Draft202012Validator(yaml.safe_load(schema(kind)))
    random, document = Random(16), yaml.safe_load(sample)
    names, path = tuple(sorted(keys(document))), tmp_path / "file.yaml"
    seen = {True: 0, False: 0}
    for _ in range(few(2000)):
        changed = mutated(document, random, random.choice([0, 1, 1, 2]), names)
        text = yaml.safe_dump(changed, sort_keys=False)
        faults = [each for each in faults_of(text, path) if not any(w in each for w in BEYOND)]
        assert judge.is_valid(changed) is not bool(faults), (faults, text)
        seen[not faults] += 1
    assert min(seen.values()) > sum(seen.values()) / 10, seen
