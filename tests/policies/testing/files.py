"""Reads files of tests and of policies from text."""

import textwrap

from policies.definitions.definition import Definition, DefinitionFaults
from policies.definitions.load import parse_tree
from policies.definitions.policy_form import POLICY_FILE
from policies.sets.role import Role
from policies.testing.cases import CaseFile, parse
from policies.testing.run import Result, compiled, policy, run


def faults_of(text: str) -> list[str]:
    """The faults of a file of tests, each `LINE: KEY: message`."""
    faults = DefinitionFaults("")
    tree = parse_tree(textwrap.dedent(text), faults)
    assert tree is not None
    assert (parse(tree, faults) is None) == bool(faults.found)
    return [str(fault).removeprefix(":") for fault in faults.found]


def cases(text: str) -> CaseFile:
    faults = DefinitionFaults("t/a/x_test.yaml")
    tree = parse_tree(textwrap.dedent(text), faults)
    found = None if tree is None else parse(tree, faults)
    assert found is not None, faults.found
    return found


def definitions(text: str) -> list[Definition]:
    faults = DefinitionFaults("t/a/x.yaml")
    tree = parse_tree(textwrap.dedent(text), faults)
    assert tree is not None
    read = POLICY_FILE.read("", tree, faults)
    assert not faults.found
    assert read is not None
    return list(read["policies"])


def roles(text: str) -> dict[str, Role]:
    return compiled(map(policy, definitions(text)))


def results(policies: str, tests: str) -> list[Result]:
    return list(run(cases(tests), roles(policies)))


def failed(policies: str, tests: str) -> list[str]:
    return [result.case.name for result in results(policies, tests) if not result.passed]
