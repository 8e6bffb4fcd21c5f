"""What a change of policies does: computed from the policies before and after it. Knows no process
and no store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from control_api.requests.policies import ReviewedPolicies, TriedRetrieval
from policies.analysis.difference import by_role, difference
from policies.analysis.examples import body, decided
from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import MAX_STEPS
from policies.analysis.rows import difference_rows
from policies.checks.finding import Facts
from policies.definitions.definition import DefinitionFaults
from policies.definitions.guardrail import Guardrail
from policies.definitions.load import fault_in_text, parse_tree
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.evaluate import evaluate
from policies.explain import explain
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from policies.suggestion import suggest
from policies.testing.cases import CaseFile
from policies.testing.parse import parse
from policies.testing.run import clauses, compiled, failure, run

MAX_FAILURES = 1000
"""Failed cases that are listed."""
UNSTORED = {"policy_id": "", "version": 0}
"""What the store adds to a policy. No decision depends on it."""
_CALLER = Key("review", "evaluate")

Wire = dict[str, Any]
_Roles = Mapping[str, Sequence[Policy]]


def compared(old: Sequence[Policy], new: Sequence[Policy], steps: int = MAX_STEPS) -> Wire:
    """`{newly_allowed, newly_denied}`. Raises `TooManyClasses`."""
    return difference_rows(difference(old, new, steps), by_role(old), by_role(new))


def effects(
    old: Sequence[Policy], new: Sequence[Policy], guardrails: Iterable[Guardrail], steps: int
) -> Wire:
    """`{newly_allowed, newly_denied, broken_guardrails}`. Raises `TooManyClasses`."""
    before, after = by_role(old), by_role(new)
    # The guardrails hold for what is in force, so only roles that change can break one.
    touched = {
        role: after.get(role, [])
        for role in {*before, *after}
        if before.get(role) != after.get(role)
    }
    broken = list(_broken(guardrails, touched, steps))
    return {**compared(old, new, steps), "broken_guardrails": broken}


def candidate_reviewed(
    old: Sequence[Policy], new: Sequence[Policy], guardrails: Iterable[Guardrail], steps: int
) -> Wire:
    """What a promotion would do, by what it allows and by the names of policies. Raises
    `TooManyClasses`."""
    # Ids and versions are the store's: a policy that a candidate leaves as it is may have others.
    before, after = _by_name(old), _by_name(new)
    return {
        **effects(old, new, guardrails, steps),
        "added": sorted(after.keys() - before.keys()),
        "updated": sorted(
            name for name in after.keys() & before.keys() if after[name] != before[name]
        ),
        "removed": sorted(before.keys() - after.keys()),
    }


def _by_name(policies: Iterable[Policy]) -> dict[str, Wire]:
    return {each.name: {**each.to_wire(), **UNSTORED} for each in policies}


def reviewed(
    asked: ReviewedPolicies,
    old: Sequence[Policy],
    new: Sequence[Policy],
    guardrails: Iterable[Guardrail],
    steps: int,
) -> Wire:
    """A `PolicyReview`. Raises `TooManyClasses`."""
    needed = {asked.ask.agent_role} if asked.ask is not None else set()
    # The cases of a file of tests may ask about any role.
    roles = compiled(each for each in new if asked.tests is not None or each.agent_role in needed)
    return {
        **effects(old, new, guardrails, steps),
        "tests": None if asked.tests is None else _tested(asked.tests, roles),
        "answer": None if asked.ask is None else _answer(asked.ask, roles),
    }


def _broken(guardrails: Iterable[Guardrail], touched: _Roles, steps: int) -> Iterator[Wire]:
    guarded = GuardedRoles(touched, every=False, steps=steps)
    for each in guardrails:
        request = guarded.counterexample(each)
        if request is not None:
            policies = touched[request.agent_role]
            role = compile_role(request.agent_role, policies) if policies else None
            yield {
                "guardrail": each.name,
                **decided(request, role),
                "counterexample": body(request),
            }


def _tested(text: str, roles: Mapping[str, Role]) -> Wire:
    faults = DefinitionFaults("tests")
    file: CaseFile | None = None
    try:
        if not fault_in_text(text, faults):
            tree = parse_tree(text, faults, "tests")
            file = None if tree is None else parse(tree, faults)
    except DefinitionFaults.TooManyFaults:
        pass  # `faults` keeps what was found, and its last entry says that there are more
    if faults.found or file is None:
        found = [{"line": f.line, "key": f.key, "message": f.message} for f in faults.found]
        return {"cases": 0, "failed": 0, "faults": found, "failures": []}
    wrong = (result for result in run(file, roles) if not result.passed)
    failures = [failure(result, roles) for result in islice(wrong, MAX_FAILURES)]
    more = sum(1 for _ in wrong)
    return {
        "cases": len(file),
        "failed": len(failures) + more,
        "faults": [],
        "failures": failures,
    }


def _answer(ask: TriedRetrieval, roles: Mapping[str, Role]) -> Wire:
    retrieval = Retrieval(**ask.model_dump())
    role, agent_id = retrieval.agent_role, retrieval.agent_id
    agent = None if agent_id is None else Agent(agent_id, "approved", (role,), None)
    facts = Facts(TenantSettings("review"), _CALLER, agent, None, roles.get(role), 0)
    decision = evaluate(retrieval, facts)
    return {
        "decision": decision.decision,
        "policy_name": decision.policy_name,
        "check": decision.check,
        "reason": decision.reason,
        **explain(retrieval, facts, decision),
        "suggestion": suggest(retrieval, decision, facts.role, clauses(roles)),
    }
