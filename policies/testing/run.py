"""Decides the cases of test files with the core, as a service would.

    roles = compiled(policies)
    failures = [failure for file in files for failure in run(file, roles)]

Knows neither files nor output.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from policies.checks.finding import Facts
from policies.definitions.definition import Definition
from policies.definitions.model import Policy
from policies.evaluate import Decision, evaluate
from policies.explain import explain
from policies.sets.role import Clause, Role, compile_role
from policies.suggestion import suggest
from policies.testing.cases import Case, CaseFile, Expected

Roles = Mapping[str, Role]


class Result(NamedTuple):
    """A case, what it was decided from, and the decision."""

    case: Case
    facts: Facts
    decision: Decision

    @property
    def passed(self) -> bool:
        return agrees(self.decision, self.case.expected)

    def nearest_miss(self) -> dict[str, Any] | None:
        """What would have allowed the call (`policies.explain`); None if it is allowed."""
        miss: dict[str, Any] | None
        miss = explain(self.case.retrieval, self.facts, self.decision)["nearest_miss"]
        return miss


def policy(definition: Definition) -> Policy:
    """The policy that a file defines. The store gives ids and versions; no check needs them."""
    return Policy.from_wire({**definition.body, "policy_id": "", "version": 0})


def compiled(policies: Iterable[Policy]) -> dict[str, Role]:
    """The roles that the policies make, by name."""
    ordered = sorted(policies, key=_role)
    return {name: compile_role(name, of, digest="-") for name, of in groupby(ordered, _role)}


def run(file: CaseFile, roles: Roles) -> Iterator[Result]:
    """The result of each case, in order."""
    settings, agent_of = file.settings, file.agent
    for case in file.cases():
        asked = case.retrieval
        agent_id, role = asked.agent_id, asked.agent_role
        agent = None if agent_id is None else agent_of(agent_id, role)
        facts = Facts(settings, case.entry.key, agent, None, roles.get(role), 0)
        yield Result(case, facts, evaluate(asked, facts))


def agrees(decision: Decision, expected: Expected) -> bool:
    """Whether the decision has every expected member."""
    return all(getattr(decision, name) == value for name, value in expected.items())


def failure(result: Result, roles: Roles) -> dict[str, Any]:
    """What was asked, what was expected, and what the core decided from `roles`."""
    case, decision = result.case, result.decision
    asked = case.retrieval._asdict()
    return {
        "line": case.entry.line,
        "name": case.name,
        "ask": {name: value for name, value in asked.items() if value not in (None, ())},
        "expected": dict(case.expected),
        "decision": decision.decision,
        "policy_name": decision.policy_name,
        "check": decision.check,
        "reason": decision.reason,
        "nearest_miss": result.nearest_miss(),
        "suggestion": suggest(case.retrieval, decision, result.facts.role, clauses(roles)),
    }


def clauses(roles: Roles) -> Iterator[Clause]:
    """The policies of all roles."""
    return (clause for role in roles.values() for clause in role.clauses)


def _role(each: Policy) -> str:
    return each.agent_role
