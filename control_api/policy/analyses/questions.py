"""Answers the questions about policies that the analysis process is asked, among them the review of
a change of policies.

`answer` handles small questions in the calling process, which takes a few milliseconds, because to
start an analysis process takes 0.2 s if none is idle. It sends larger questions to an analysis
process.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson

from control_api.policy import candidate_models as candidate_request
from control_api.policy.analyses.process import Analyses, Job
from control_api.policy.impact_counts import prepare
from control_api.policy.models import (
    UNSTORED,
    ComparedPolicies,
    PolicySetBody,
    ReviewedPolicies,
    TriedRetrieval,
)
from policies.analysis import matrix as analysis
from policies.analysis.access import AccessQuery, body, decided
from policies.analysis.callers import CallersOfRoles, RegistrySnapshot
from policies.analysis.difference import by_role, difference
from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import MAX_STEPS, TooManyClasses
from policies.analysis.rows import access_rows, difference_rows
from policies.checks.finding import Facts
from policies.definitions.definition import DefinitionFaults
from policies.definitions.guardrail import Guardrail
from policies.definitions.load import fault_in_text, parse_tree
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.evaluate import evaluate
from policies.explain import explain
from policies.ground.canonical import parse_object
from policies.nearest_miss import suggest
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from policies.testing.cases import CaseFile, parse
from policies.testing.run import clauses, compiled, failure, run

MAX_FAILURES = 1000
"""The most failed test cases that are listed."""
_CALLER = Key("review", "evaluate")

Wire = dict[str, Any]
_Roles = Mapping[str, Sequence[Policy]]


def compared(old: Sequence[Policy], new: Sequence[Policy], steps: int = MAX_STEPS) -> Wire:
    """Compare two sets of policies. Return `{newly_allowed, newly_denied}`. Raise `TooManyClasses`
    if that takes more than `steps` for a role."""
    return difference_rows(difference(old, new, steps), by_role(old), by_role(new))


def effects(
    old: Sequence[Policy], new: Sequence[Policy], guardrails: Iterable[Guardrail], steps: int
) -> Wire:
    """Compare two sets of policies, and find the guardrails that the new ones break. Return
    `{newly_allowed, newly_denied, broken_guardrails}`. Raise `TooManyClasses` if that takes more
    than `steps` for a role."""
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
    """Return what the promotion of a candidate changes: requests whose decision changes, broken
    guardrails, and the names of policies that are added, updated and removed. Raise
    `TooManyClasses` if that takes more than `steps` for a role."""
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
    policy_set: ReviewedPolicies,
    old: Sequence[Policy],
    new: Sequence[Policy],
    guardrails: Iterable[Guardrail],
    steps: int,
) -> Wire:
    """Return the JSON of a `PolicyReview`. Raise `TooManyClasses` if the comparison takes more than
    `steps` for a role."""
    needed = {policy_set.ask.agent_role} if policy_set.ask is not None else set()
    # The cases of a file of tests may ask about any role.
    roles = compiled(
        each for each in new if policy_set.tests is not None or each.agent_role in needed
    )
    return {
        **effects(old, new, guardrails, steps),
        "tests": None if policy_set.tests is None else _tested(policy_set.tests, roles),
        "answer": None if policy_set.ask is None else _answer(policy_set.ask, roles),
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
    return {"cases": len(file), "failed": len(failures) + more, "faults": [], "failures": failures}


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


EVALUATES = frozenset({"evaluate", "admin"})
"""The scopes whose API keys may request evaluations."""


def diff(job: Job, steps: int = MAX_STEPS) -> bytes:
    """Answer `diff_policies`: compare the set of policies in the request's body with the role
    documents in force, or with the request's `against`."""
    body, in_force = job.parts
    policy_set = ComparedPolicies.read(parse_object(body, None, unique=True))
    if policy_set.against is None:
        old = _stored(in_force)
    else:
        old = [Policy.from_wire(UNSTORED | each.body()) for each in policy_set.against]
    return orjson.dumps(compared(old, _requested(policy_set, in_force), steps))


def review(job: Job, steps: int = MAX_STEPS) -> bytes:
    """Answer `review_policies`: review the set of policies in the request's body as a replacement
    of those in force."""
    body, in_force, rules = job.parts
    policy_set = ReviewedPolicies.read(parse_object(body, None, unique=True))
    old, new = _stored(in_force), _requested(policy_set, in_force)
    return orjson.dumps(reviewed(policy_set, old, new, _guardrails(rules), steps))


def candidate_review(job: Job, steps: int = MAX_STEPS) -> bytes:
    """Answer `review_candidate`: review the promotion of a candidate, which is given as the
    documents of its roles."""
    documents, in_force, rules = job.parts
    old, new = _stored(in_force), _stored(documents)
    found = candidate_reviewed(old, new, _guardrails(rules), steps)
    return orjson.dumps({**job.options, **found})


def access(job: Job) -> bytes:
    """Answer `show_access`: list what registered agents with live keys may access under the
    policies in force."""
    roles, agents, keys, enrolled, tenant = map(orjson.loads, job.parts)
    settings, now = TenantSettings.from_wire(tenant[0]), job.options["now"]
    live = (key for key in map(Key.from_wire, keys) if key.scope in EVALUATES and key.live(now))
    # The key of an enrolled pod speaks for its agent alone.
    pods = (Key(key_id, "evaluate", agent_id) for key_id, agent_id in enrolled)
    registry = RegistrySnapshot(settings, [*map(Agent.from_wire, agents)], [*live, *pods])
    callers, question, level = (
        CallersOfRoles(registry),
        _question(job.options),
        job.options["level"],
    )
    rows = []
    for documents in sorted(roles, key=_role):
        role = _role(documents)
        policies = [*_policies(documents)]
        rows += access_rows(role, policies, question, level, callers.of(role))
    return orjson.dumps({"rows": rows})


def access_by_policies(job: Job, steps: int = MAX_STEPS) -> bytes:
    """Answer `show_access` with `policies_only`: list the access that the policies of some roles
    allow, whether or not an agent is registered for them."""
    [roles] = job.parts
    question = _question(job.options)._replace(steps=steps)
    rows = []
    for documents in sorted(orjson.loads(roles), key=_role):
        rows += access_rows(
            _role(documents), [*_policies(documents)], question, job.options["level"]
        )
    return orjson.dumps({"rows": [{**row, "agent_ids": []} for row in rows]})


def matrix(job: Job) -> bytes:
    """Answer `show_access_matrix`: return the levels that the policies of some roles allow of each
    source that they name."""
    return orjson.dumps(analysis.matrix(*_matrix(job), MAX_STEPS, strict=False))


def matrix_within(job: Job, steps: int) -> bytes:
    """Answer `matrix` within so many steps for each role. Raise `TooManyClasses` if that is not
    enough."""
    return orjson.dumps(analysis.matrix(*_matrix(job), steps, strict=True))


def _matrix(job: Job) -> tuple[dict[str, list[Policy]], analysis.Columns]:
    [roles] = job.parts
    of_role = {_role(each): [*_policies(each)] for each in orjson.loads(roles)}
    return dict(sorted(of_role.items())), analysis.Columns(**job.options)


def impact(job: Job) -> bytes:
    """Decode and validate the request that starts an impact run, and return it prepared. This
    analyses nothing; it runs here because the body may be large."""
    return prepare(*job.parts)


def candidate(job: Job) -> bytes:
    """Decode and validate the request that publishes a candidate, and return it prepared. This
    analyses nothing; it runs here because the body may be large."""
    body, in_force = job.parts
    return candidate_request.prepare(job.options["name"], body, in_force)


QUESTIONS: Mapping[str, Callable[[Job], bytes]] = {
    "diff": diff,
    "review": review,
    "candidate_review": candidate_review,
    "access": access,
    "access_by_policies": access_by_policies,
    "matrix": matrix,
    "impact": impact,
    "candidate": candidate,
}


def _guardrails(rules: bytes) -> list[Guardrail]:
    return [Guardrail.from_wire(each) for each in orjson.loads(rules)]


def _stored(documents: bytes) -> list[Policy]:
    return [policy for document in orjson.loads(documents) for policy in _policies(document)]


def _requested(policy_set: PolicySetBody, in_force: bytes) -> list[Policy]:
    return [Policy.from_wire(UNSTORED | each) for each in policy_set.bodies(in_force)]


def _policies(documents: Iterable[dict[str, Any]]) -> Iterable[Policy]:
    return map(Policy.from_wire, documents)


def _role(documents: list[dict[str, Any]]) -> str:
    """Return the role whose policies a document lists. The document has at least one policy."""
    role: str = documents[0]["agent_role"]
    return role


def _question(options: Mapping[str, Any]) -> AccessQuery:
    one = {
        name: () if options[name] is None else (options[name],)
        for name in ("agent", "task", "source")
    }
    return AccessQuery(one["agent"], one["task"], one["source"])


MAX_BYTES = 32 * 1024
"""The most bytes of documents in a small question, which is answered in the calling process."""
MAX_STEPS_HERE = 4_000
"""The most steps of analysis that a small question may take for each role, about 2 ms."""
MAX_SMALL_ANALYSES = 20
"""The most analyses that a small question may consist of: one for each role, and one for each
guardrail on it."""
MAX_BODY = 8 * 1024
"""The most bytes of a request body that is decoded in the calling process. An invalid body costs
more, because each of its items gets a complaint."""
MAX_WILDCARDS = 200
"""The most `*` and `?` in a small question. To compare two patterns takes time in proportion to the
product of their lengths, which the count of steps does not include."""

_SMALL: Mapping[str, Callable[[Job, int], bytes]] = {
    "access_by_policies": access_by_policies,
    "matrix": matrix_within,
    "diff": diff,
    "review": review,
    "candidate_review": candidate_review,
}


async def answer(analyses: Analyses, tenant_id: str, job: Job, analyses_needed: int = 1) -> bytes:
    """Return the JSON that answers the question: computed in this process if the question is small,
    else in an analysis process. Raises as `Analyses.answer` does. `analyses_needed` is the number
    of analyses that the question consists of."""
    if analyses_needed <= MAX_SMALL_ANALYSES and _is_small(job.parts):
        try:
            return _SMALL[job.question](job, MAX_STEPS_HERE)
        except TooManyClasses:
            pass  # a question of few policies, but not a small one
    return await analyses.answer(tenant_id, job)


def _is_small(parts: Sequence[bytes]) -> bool:
    wildcards = sum(part.count(b"*") + part.count(b"?") for part in parts)
    return sum(map(len, parts)) <= MAX_BYTES and wildcards <= MAX_WILDCARDS
