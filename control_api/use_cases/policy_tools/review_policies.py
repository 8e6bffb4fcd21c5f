"""Says everything that can be known of a change of policies before it is made."""

from typing import Annotated

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.analyses import here
from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.requests.base import UndecodedRequest
from control_api.requests.policies import ReviewedPolicies
from control_api.responses.audit import Document
from control_api.responses.review import PolicyReview
from control_api.store.queries import documents, guardrails, policies
from policies.ground.json_body import parse_object
from policies.sets.policy_set import ROLE, role_name


@ends_with_client
async def review_policies(
    app: AppContext, caller: Caller, request: Annotated[UndecodedRequest, ReviewedPolicies]
) -> PolicyReview | Document:
    """Say what these policies would newly allow and deny, which guardrails they would break, and
    how tests and one request come out under them.

    Changes nothing. One question instead of several: all of it is about the same policies in force.
    """
    tenant_id = caller.tenant_id
    async with app.store.snapshot(tenant_id) as connection:
        roles = await _roles(connection, tenant_id, request.body)
        if roles is None:
            in_force = await documents.array_of(connection, tenant_id, ROLE)
        else:
            wanted = [role_name(role) for role in sorted(roles)]
            found = documents.bodies(connection, tenant_id, wanted, small=here.MAX_BYTES)
            in_force = documents.json_array([each async for _, each in found])
        rows = await guardrails.every(connection, tenant_id)
    rules = orjson.dumps([each.guardrail.to_wire() for each in rows])
    job = Job("review", {}, (request.body, in_force, rules))
    if roles is None:
        return Document("application/json", await app.analyses.answer(tenant_id, job))
    tries = len(roles) * (1 + len(rows))
    return Document("application/json", await here.answer(app.analyses, tenant_id, job, tries))


async def _roles(connection: AsyncConnection, tenant_id: str, body: bytes) -> set[str] | None:
    """The roles that the answer depends on; None stands for all. Raises `Malformed` and `Invalid`
    as the answer would."""
    if len(body) > here.MAX_BODY:
        return None
    asked = ReviewedPolicies.read(parse_object(body, None, unique=True))
    # A file of tests may ask about any role, and without the others all roles change.
    if not asked.keep_others or asked.tests is not None:
        return None
    names = [*asked.without, *(each.name for each in asked.policies)]
    roles = await policies.roles_of(connection, tenant_id, names)
    roles |= {each.agent_role for each in asked.policies}
    if asked.ask is not None:
        roles.add(asked.ask.agent_role)
    # Each document that there is not costs a query of its own.
    return roles if len(roles) <= here.MAX_TRIES else None
