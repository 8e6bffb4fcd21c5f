"""Decides the cases of test files with the core, as a service would, and finds the policies and
entries that the cases depend on.

    roles = compiled(policies)
    results = [result for file in files for result in run(file, roles)]
    failures = [failure(each, roles) for each in results if not each.passed]

A part (a policy or an entry) is covered if a case that passes would fail without it. So coverage is
no estimate: take a covered part out of its file, and a test fails. An entry that another entry of
its list repeats, or a denial of something that is not allowed anyway, is covered by no case that
expects the decision alone. Knows neither files nor output.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from policies.checks.finding import Facts
from policies.definitions.definition import Definition
from policies.definitions.model import Policy
from policies.definitions.wildcard import Matcher, is_pattern, matcher
from policies.evaluate import Decision, evaluate
from policies.explain import explain
from policies.nearest_miss import suggest
from policies.sets.role import Clause, Role, compile_clause, compile_role
from policies.testing.cases import Case, CaseFile, Expected

Roles = Mapping[str, Role]


class Result(NamedTuple):
    """The result of running a case: the facts by which it was decided, and the decision."""

    case: Case
    facts: Facts
    decision: Decision

    @property
    def passed(self) -> bool:
        return agrees(self.decision, self.case.expected)

    def nearest_miss(self) -> dict[str, Any] | None:
        """Return the changes that would have allowed the call (`policies.explain`); None if the
        call is allowed."""
        miss: dict[str, Any] | None
        miss = explain(self.case.retrieval, self.facts, self.decision)["nearest_miss"]
        return miss


def policy(definition: Definition) -> Policy:
    """Return the policy of a definition from a file. Its id and version are empty, since only the
    store gives them and no check needs them."""
    return Policy.from_wire({**definition.body, "policy_id": "", "version": 0})


def compiled(policies: Iterable[Policy]) -> dict[str, Role]:
    """Return the roles of these policies, compiled, by name."""
    ordered = sorted(policies, key=_role)
    return {name: compile_role(name, of, digest="-") for name, of in groupby(ordered, _role)}


def run(file: CaseFile, roles: Roles) -> Iterator[Result]:
    """Decide the cases of a file, and yield the result of each, in order."""
    settings, agent_of = file.settings, file.agent
    for case in file.cases():
        asked = case.retrieval
        agent_id, role = asked.agent_id, asked.agent_role
        agent = None if agent_id is None else agent_of(agent_id, role)
        facts = Facts(settings, case.entry.key, agent, None, roles.get(role), 0)
        yield Result(case, facts, evaluate(asked, facts))


def agrees(decision: Decision, expected: Expected) -> bool:
    """Return whether the decision has every expected member."""
    return all(getattr(decision, name) == value for name, value in expected.items())


def failure(result: Result, roles: Roles) -> dict[str, Any]:
    """Return a report on a case that failed: its call, the expected answer, and what the core
    decided by `roles` and why."""
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
    """Yield the compiled policies of all roles."""
    return (clause for role in roles.values() for clause in role.clauses)


def _role(each: Policy) -> str:
    return each.agent_role


LISTS: Final = ("allowed_sources", "denied_sources", "denied_tasks")
"""The lists of a policy whose entries coverage counts: those of allowed and of denied names."""


class Part(NamedTuple):
    """A part of the policies that can be covered: a policy, or one entry of its list `list`."""

    policy_name: str
    list: str | None = None
    at: int = 0
    """The entry's index in the list."""


class Coverage:
    """The parts of a tenant's policies, and those among them on which some case depends."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self.definitions: Final = {each.body["name"]: each for each in definitions}
        self.parts: Final = [
            part
            for name, each in self.definitions.items()
            for part in (
                Part(name),
                *(Part(name, of, at) for of in LISTS for at in range(len(each.body[of]))),
            )
        ]
        self.covered: Final[set[Part]] = set()
        self._entries = {
            (name, of): _Entries(each.body[of], wild=of != "denied_tasks")
            for name, each in self.definitions.items()
            for of in LISTS
        }
        self._without: dict[Part, Role | None] = {}

    def entry(self, part: Part) -> str | None:
        """Return the text of the entry that a part is; None if the part is a whole policy."""
        listed = self.definitions[part.policy_name].body
        return None if part.list is None else str(listed[part.list][part.at])

    def uncovered(self) -> list[Part]:
        """Return the parts that no case depends on, in the order of the files."""
        return [part for part in self.parts if part not in self.covered]

    def add(self, result: Result) -> None:
        """Mark the parts on which a case depends as covered. The case must have passed."""
        if result.decision.policy_id is None:
            return  # no policy decided
        # Only the policy that decided matters: without any other, the decision is the same.
        for part in self._deciding(result):
            if part not in self.covered:
                facts = result.facts._replace(role=self._role_without(part, result.facts.role))
                if not agrees(evaluate(result.case.retrieval, facts), result.case.expected):
                    self.covered.add(part)
                    del self._without[part]  # not needed again

    def _deciding(self, result: Result) -> Iterator[Part]:
        asked, name = result.case.retrieval, result.decision.policy_name
        yield Part(name)
        for of in LISTS:
            value = asked.task_type if of == "denied_tasks" else asked.source_id
            at = None if value is None else self._entries[name, of].only(value)
            if at is not None:
                yield Part(name, of, at)

    def _role_without(self, part: Part, role: Role | None) -> Role | None:
        assert role is not None  # a policy of it decided
        if part not in self._without:
            self._without[part] = self._removed(part, role)
        return self._without[part]

    def _removed(self, part: Part, role: Role) -> Role | None:
        clauses = {clause.name: clause for clause in role.clauses}
        del clauses[part.policy_name]
        if part.list is not None:
            definition = self.definitions[part.policy_name]
            entries = list(definition.body[part.list])
            del entries[part.at]
            changed = replace(definition, body={**definition.body, part.list: entries})
            clauses[part.policy_name] = compile_clause(policy(changed))
        # The role's own lists of denials stay: they only tell whether all policies must be looked
        # at, so a name too many costs time and changes no decision.
        ordered = tuple(clauses[name] for name in sorted(clauses))
        return replace(role, clauses=ordered) if ordered else None


class _Entries:
    """The entries of one list of a policy, to find the single entry that matches a name."""

    def __init__(self, entries: list[str], *, wild: bool) -> None:
        self._exact: dict[str, list[int]] = {}
        self._patterns: list[tuple[int, Matcher]] = []
        for at, entry in enumerate(entries):
            if wild and is_pattern(entry):
                self._patterns.append((at, matcher([entry])))
            else:
                self._exact.setdefault(entry, []).append(at)

    def only(self, name: str) -> int | None:
        """Return the index of the entry that matches the name; None if no entry matches, or several
        do: then no single entry decides."""
        found = [*self._exact.get(name, ()), *(at for at, hits in self._patterns if hits(name))]
        return found[0] if len(found) == 1 else None
