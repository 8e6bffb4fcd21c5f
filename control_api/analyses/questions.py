"""The questions that the analysis process answers. Knows no process and no service."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from control_api.analyses.job import Job
from control_api.analyses.review import UNSTORED, candidate_reviewed, compared, reviewed
from control_api.requests import candidate as candidate_request
from control_api.requests.impact import prepare
from control_api.requests.policies import ComparedPolicies, PolicySetAsked, ReviewedPolicies
from policies.analysis import matrix as analysis
from policies.analysis.access import Asked
from policies.analysis.names import MAX_STEPS
from policies.analysis.registry import CallersOfRoles, Registry
from policies.analysis.rows import access_rows
from policies.definitions.guardrail import Guardrail
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.ground.json_body import parse_object

EVALUATES = frozenset({"evaluate", "admin"})
"""The scopes whose keys may evaluate."""


def diff(job: Job, steps: int = MAX_STEPS) -> bytes:
    """What a set of policies, the body of the request, newly allows and denies compared with what
    is in force: documents of roles."""
    body, in_force = job.parts
    asked = ComparedPolicies.read(parse_object(body, None, unique=True))
    if asked.against is None:
        old = _stored(in_force)
    else:
        old = [Policy.from_wire(UNSTORED | each.body()) for each in asked.against]
    return orjson.dumps(compared(old, _asked_set(asked, in_force), steps))


def review(job: Job, steps: int = MAX_STEPS) -> bytes:
    """What a set of policies, the body of the request, would do in place of what is in force."""
    body, in_force, rules = job.parts
    asked = ReviewedPolicies.read(parse_object(body, None, unique=True))
    old, new = _stored(in_force), _asked_set(asked, in_force)
    return orjson.dumps(reviewed(asked, old, new, _guardrails(rules), steps))


def candidate_review(job: Job, steps: int = MAX_STEPS) -> bytes:
    """What the promotion of a candidate, documents of its roles, would do."""
    documents, in_force, rules = job.parts
    old, new = _stored(in_force), _stored(documents)
    found = candidate_reviewed(old, new, _guardrails(rules), steps)
    return orjson.dumps({**job.options, **found})


def access(job: Job) -> bytes:
    """What the policies in force allow to those who are registered."""
    roles, agents, keys, enrolled, tenant = map(orjson.loads, job.parts)
    settings, now = TenantSettings.from_wire(tenant[0]), job.options["now"]
    live = (key for key in map(Key.from_wire, keys) if key.scope in EVALUATES and key.live(now))
    registry = Registry(settings, [*map(Agent.from_wire, agents)], [*live, *_enrolled(enrolled)])
    callers, asked, level = CallersOfRoles(registry), _asked(job.options), job.options["level"]
    rows = []
    for documents in sorted(roles, key=_role):
        role = _role(documents)
        policies = [*_policies(documents)]
        rows += access_rows(role, policies, asked, level, callers.of(role))
    return orjson.dumps({"rows": rows})


def access_by_policies(job: Job, steps: int = MAX_STEPS) -> bytes:
    """What the policies of some roles allow; the registry is left out."""
    [roles] = job.parts
    asked = _asked(job.options)._replace(steps=steps)
    rows = []
    for documents in sorted(orjson.loads(roles), key=_role):
        rows += access_rows(_role(documents), [*_policies(documents)], asked, job.options["level"])
    return orjson.dumps({"rows": [{**row, "agent_ids": []} for row in rows]})


def matrix(job: Job) -> bytes:
    """What the policies of some roles allow of each source that they name."""
    return orjson.dumps(analysis.matrix(*_matrix(job), MAX_STEPS, strict=False))


def matrix_within(job: Job, steps: int) -> bytes:
    """The same within so many steps for each role. Raises `TooManyClasses`."""
    return orjson.dumps(analysis.matrix(*_matrix(job), steps, strict=True))


def _matrix(job: Job) -> tuple[dict[str, list[Policy]], analysis.Columns]:
    [roles] = job.parts
    of_role = {_role(each): [*_policies(each)] for each in orjson.loads(roles)}
    return dict(sorted(of_role.items())), analysis.Columns(**job.options)


def impact(job: Job) -> bytes:
    """The request for an impact run, decoded and validated. Analyses nothing."""
    return prepare(*job.parts)


def candidate(job: Job) -> bytes:
    """The request that publishes a candidate, decoded and validated. Analyses nothing."""
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


def _asked_set(asked: PolicySetAsked, in_force: bytes) -> list[Policy]:
    return [Policy.from_wire(UNSTORED | each) for each in asked.bodies(in_force)]


def _policies(documents: Iterable[dict[str, Any]]) -> Iterable[Policy]:
    return map(Policy.from_wire, documents)


def _role(documents: list[dict[str, Any]]) -> str:
    """A role's document is the list of its policies, at least one."""
    role: str = documents[0]["agent_role"]
    return role


def _asked(options: Mapping[str, Any]) -> Asked:
    one = {
        name: () if options[name] is None else (options[name],)
        for name in ("agent", "task", "source")
    }
    return Asked(one["agent"], one["task"], one["source"])


def _enrolled(rows: Iterable[tuple[str, str]]) -> Iterable[Key]:
    """Keys of enrolled pods, each of which speaks for its agent alone."""
    return (Key(key_id, "evaluate", agent_id) for key_id, agent_id in rows)
