"""Says what a set of policies would newly allow and deny."""

from typing import Annotated

from control_api.analyses import here
from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.requests.base import UndecodedRequest
from control_api.requests.policies import ComparedPolicies
from control_api.responses.access import PolicyDifference
from control_api.responses.audit import Document
from control_api.store.queries import documents
from policies.ground.json_body import parse_object
from policies.sets.policy_set import ROLE


@ends_with_client
async def diff_policies(
    app: AppContext, caller: Caller, request: Annotated[UndecodedRequest, ComparedPolicies]
) -> PolicyDifference | Document:
    """Say exactly what these policies would newly allow and deny, in place of those in force or of
    `against`.

    Changes nothing. A row holds for every request that it matches, as far as the policies go: the
    registry and sessions are left out.
    """
    tenant_id = caller.tenant_id
    if len(request.body) <= here.MAX_BODY:
        asked = ComparedPolicies.read(parse_object(request.body, None, unique=True))
        if asked.against is not None and not asked.keep_others:
            # What is in force does not matter, and a question about few roles is a small one.
            job = Job("diff", {}, (request.body, b"[]"))
            roles = {each.agent_role for each in (*asked.policies, *asked.against)}
            answer = await here.answer(app.analyses, tenant_id, job, len(roles))
            return Document("application/json", answer)
    async with app.store.snapshot(tenant_id) as connection:
        in_force = await documents.array_of(connection, tenant_id, ROLE)
    job = Job("diff", {}, (request.body, in_force))
    return Document("application/json", await app.analyses.answer(tenant_id, job))
