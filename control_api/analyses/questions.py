"""The questions that the analysis process answers. Knows no process and no service."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from control_api.analyses.job import Job
from control_api.requests import candidate as candidate_request
from control_api.requests.impact import prepare
from control_api.requests.policies import PolicySetAsked
from policies.analysis.access import Asked
from policies.analysis.difference import by_role, difference
from policies.analysis.registry import CallersOfRoles, Registry
from policies.analysis.rows import access_rows, difference_rows
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.ground.json_body import parse_object

EVALUATES = frozenset({"evaluate", "admin"})
"""The scopes whose keys may evaluate."""


def diff(job: Job) -> bytes:
    """What a set of policies, the body of the request, newly allows and denies compared with what
    is in force: documents of roles."""
    body, in_force = job.parts
    asked = PolicySetAsked.read(parse_object(body, None, unique=True))
    old = [policy for documents in orjson.loads(in_force) for policy in _policies(documents)]
    new = [Policy.from_wire(_UNSTORED | each) for each in asked.bodies()]
    return orjson.dumps(difference_rows(difference(old, new), by_role(old), by_role(new)))


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


def impact(job: Job) -> bytes:
    """The request for an impact run, decoded and validated. Analyses nothing."""
    [body] = job.parts
    return prepare(body)


def candidate(job: Job) -> bytes:
    """The request that publishes a candidate, decoded and validated. Analyses nothing."""
    body, in_force = job.parts
    return candidate_request.prepare(job.options["name"], body, in_force)


QUESTIONS: Mapping[str, Callable[[Job], bytes]] = {
    "diff": diff,
    "access": access,
    "impact": impact,
    "candidate": candidate,
}

_UNSTORED = {"policy_id": "", "version": 0}


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
