"""Answers questions about policies: who may read what, and what a change would allow and deny."""

from typing import Annotated, Any

import orjson
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import Document, PagedPart
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    Flag,
    Identifier,
    ListRequest,
    QueryInt,
    RequestModel,
    UndecodedRequest,
)
from control_api.policy import guardrails
from control_api.policy.access_models import (
    AccessCell,
    AccessMatrix,
    AccessOfRole,
    PolicyAccess,
    PolicyDifference,
    PolicyReview,
)
from control_api.policy.analyses import questions
from control_api.policy.analyses.process import Job
from control_api.policy.bundle import Policies
from control_api.policy.models import ComparedPolicies, ReviewedPolicies
from control_api.store.queries import documents, key_rows, policy_rows
from policies.analysis.matrix import Columns
from policies.definitions.model import Sensitivity
from policies.definitions.wildcard import is_pattern, matcher
from policies.ground.canonical import parse_object
from policies.ground.errors import invalid
from policies.sets.policy_set import ROLE, TENANT, role_name


@ends_with_client
async def diff_policies(
    policies: Policies, caller: Caller, request: Annotated[UndecodedRequest, ComparedPolicies]
) -> PolicyDifference | Document:
    """Say exactly what these policies would newly allow and deny, in place of those in force or of
    `against`.

    Changes nothing. A row holds for every request that it matches, as far as the policies go: the
    registry and sessions are left out.
    """
    tenant_id = caller.tenant_id
    if len(request.body) <= questions.MAX_BODY:
        policy_set = ComparedPolicies.read(parse_object(request.body, None, unique=True))
        if policy_set.against is not None and not policy_set.keep_others:
            # What is in force does not matter, and a question about few roles is a small one.
            job = Job("diff", {}, (request.body, b"[]"))
            roles = {each.agent_role for each in (*policy_set.policies, *policy_set.against)}
            answer = await questions.answer(policies.analyses, tenant_id, job, len(roles))
            return Document("application/json", answer)
    async with policies.store.snapshot(tenant_id) as connection:
        in_force = await documents.array_of(connection, tenant_id, ROLE)
    job = Job("diff", {}, (request.body, in_force))
    return Document("application/json", await policies.analyses.answer(tenant_id, job))


@ends_with_client
async def review_policies(
    policies: Policies, caller: Caller, request: Annotated[UndecodedRequest, ReviewedPolicies]
) -> PolicyReview | Document:
    """Say what these policies would newly allow and deny, which guardrails they would break, and
    how tests and one request come out under them.

    Changes nothing. One question instead of several: all of it is about the same policies in force.
    """
    tenant_id = caller.tenant_id
    async with policies.store.snapshot(tenant_id) as connection:
        roles = await _roles(connection, tenant_id, request.body)
        if roles is None:
            in_force = await documents.array_of(connection, tenant_id, ROLE)
        else:
            wanted = [role_name(role) for role in sorted(roles)]
            found = documents.bodies(connection, tenant_id, wanted, small=questions.MAX_BYTES)
            in_force = documents.json_array([each async for _, each in found])
        rows = await guardrails.every_guardrail(connection, tenant_id)
    rules = orjson.dumps([each.guardrail.to_wire() for each in rows])
    job = Job("review", {}, (request.body, in_force, rules))
    if roles is None:
        return Document("application/json", await policies.analyses.answer(tenant_id, job))
    analyses_needed = len(roles) * (1 + len(rows))
    return Document(
        "application/json",
        await questions.answer(policies.analyses, tenant_id, job, analyses_needed),
    )


async def _roles(connection: AsyncConnection, tenant_id: str, body: bytes) -> set[str] | None:
    """Return the roles that the review's answer depends on, or None if it depends on all roles.
    Raise `Malformed` or `Invalid` if the body is not a valid request."""
    if len(body) > questions.MAX_BODY:
        return None
    policy_set = ReviewedPolicies.read(parse_object(body, None, unique=True))
    # A file of tests may ask about any role, and without the others all roles change.
    if not policy_set.keep_others or policy_set.tests is not None:
        return None
    names = [*policy_set.without, *(each.name for each in policy_set.policies)]
    roles = await policy_rows.roles_of(connection, tenant_id, names)
    roles |= {each.agent_role for each in policy_set.policies}
    if policy_set.ask is not None:
        roles.add(policy_set.ask.agent_role)
    # Each document that there is not costs a query of its own.
    return roles if len(roles) <= questions.MAX_SMALL_ANALYSES else None


AGENT = "agent/"
KEY = "key/"


class AccessRequest(RequestModel):
    """The source or the role that the question is about, or both; the rest narrows it."""

    source_id: Identifier | None = None
    agent_role: Identifier | None = None
    agent_id: Identifier | None = None
    task: Annotated[Identifier | None, says("Only for this task.")] = None
    level: Annotated[Sensitivity | None, says("Only at this sensitivity.")] = None
    policies_only: Annotated[
        Flag, says("Leave agents and keys out: what policies allow once an agent is approved.")
    ] = False


@ends_with_client
async def show_access(
    policies: Policies, caller: Caller, request: AccessRequest
) -> PolicyAccess | Document:
    """Say exactly who may read a source, or what a role may read, now.

    A request counts as allowed if an evaluation with some live key of the tenant allows it: the
    agent's status and roles, its binding and those of the keys, and `require_agent_id` all count.
    Sessions and a freeze do not, nor the levels that the tenant or a sidecar's settings state of
    sources: a level here is the one that a request is decided at. `source_id` and `agent_id` may
    be patterns. With `policies_only`, say what the policies allow whether or not the agent is
    registered and has a key.
    """
    if request.source_id is None and request.agent_role is None:
        raise invalid(["source_id: is required, or agent_role"], "query")
    now = policies.clock.now()
    if request.policies_only:
        return Document("application/json", await _by_policies(policies, caller.tenant_id, request))
    async with policies.store.snapshot(caller.tenant_id) as connection:
        parts = await _documents(connection, caller.tenant_id, request.agent_role, now)
    options = {**_options(request), "now": now}
    body = await policies.analyses.answer(caller.tenant_id, Job("access", options, parts))
    return Document("application/json", body)


async def _by_policies(policies: Policies, tenant_id: str, request: AccessRequest) -> bytes:
    only = None if request.agent_role is None else role_name(request.agent_role)
    async with policies.store.snapshot(tenant_id) as connection:
        roles = await documents.array_of(
            connection, tenant_id, only or ROLE, exactly=only is not None
        )
    job = Job("access_by_policies", _options(request), (roles,))
    return await questions.answer(policies.analyses, tenant_id, job)


def _options(request: AccessRequest) -> dict[str, str | None]:
    return {
        "source": request.source_id,
        "agent": request.agent_id,
        "task": request.task,
        "level": request.level,
    }


async def _documents(
    connection: AsyncConnection, tenant_id: str, role: str | None, now: int
) -> list[bytes]:
    """Read what decides who has access: the documents of roles, agents and keys, the keys of
    enrolled pods, and the tenant's own document. Each element of the result is a JSON array."""
    only = None if role is None else role_name(role)
    enrolled = await key_rows.enrolled_of_live_agents(connection, tenant_id, now)
    return [
        await documents.array_of(connection, tenant_id, only or ROLE, exactly=only is not None),
        await documents.array_of(connection, tenant_id, AGENT),
        await documents.array_of(connection, tenant_id, KEY),
        orjson.dumps(enrolled),
        await documents.array_of(connection, tenant_id, TENANT, exactly=True),
    ]


MAX_SCANNED = 5_000
"""The most role names that one request compares with its pattern."""
_CHUNK = 500
_LARGE = 1 << 20


class AccessMatrixRequest(ListRequest):
    """Selects the roles and sources to show. `agent_role` and `source_id` may be patterns; without
    a `source_id`, the columns are the entries of the roles' policies."""

    limit: QueryInt = Field(20, ge=1, le=50, description="The most roles to return.")
    agent_role: Annotated[
        Identifier | None, says("Only roles that this name or pattern matches.")
    ] = None
    source_id: Annotated[
        Identifier | None,
        says("Only sources that overlap this name or pattern, which comes first."),
    ] = None
    sources: QueryInt = Field(12, ge=1, le=50, description="The most sources to return.")
    source_after: Annotated[
        Identifier | None, says("Only sources after this one, by their text.")
    ] = None


@ends_with_client
async def show_access_matrix(
    policies: Policies, caller: Caller, request: AccessMatrixRequest
) -> PagedPart[AccessMatrix]:
    """Show the highest level at which each role's policies allow each source.

    The columns are the sources and patterns as policies name them, or those that overlap
    `source_id`. Exact, as far as the policies go: which registered agents may act in a role now,
    `show_access` says. A page may be shorter than `limit`, or empty, and still have a
    next one.
    """
    tenant_id = caller.tenant_id
    async with policies.store.snapshot(tenant_id) as connection:
        names, after = await _names(connection, tenant_id, request)
        bodies = [
            body async for _, body in documents.bodies(connection, tenant_id, names, small=_LARGE)
        ]
    columns = Columns(request.source_id, request.source_after, request.sources)
    job = Job("matrix", columns._asdict(), (documents.json_array(bodies),))
    found = orjson.loads(await questions.answer(policies.analyses, tenant_id, job))
    return PagedPart(_shown(found), after)


async def _names(
    connection: AsyncConnection, tenant_id: str, request: AccessMatrixRequest
) -> tuple[list[str], tuple[str] | None]:
    """Return the document names of the roles on this page, and the cursor of the next page, or None
    if this is the last one."""
    wanted = request.agent_role
    if wanted is not None and not is_pattern(wanted):
        return [role_name(wanted)], None
    matches, cursor = matcher((wanted or "*",)), request.after(str)
    after = None if cursor is None else str(cursor[0])
    found: list[str] = []
    for _ in range(MAX_SCANNED // _CHUNK):
        names = await documents.names_after(connection, tenant_id, ROLE, after, _CHUNK)
        for name in names:
            if matches(name.removeprefix(ROLE)):
                if len(found) == request.limit:
                    return found, (found[-1],)
                found.append(name)
        if len(names) < _CHUNK:
            return found, None
        after = names[-1]
    return found, None if after is None else (after,)


def _shown(found: dict[str, Any]) -> AccessMatrix:
    roles = []
    for row in found["roles"]:
        cells = None if row["cells"] is None else [AccessCell(**each) for each in row["cells"]]
        roles.append(AccessOfRole(row["agent_role"], cells, row["fault"]))
    return AccessMatrix(found["sources"], found["next_source"], roles)
