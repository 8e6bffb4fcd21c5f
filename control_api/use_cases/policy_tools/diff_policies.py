"""Says what a set of policies would newly allow and deny."""

from typing import Annotated

from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import UndecodedRequest
from control_api.requests.policies import PolicySetAsked
from control_api.responses.access import PolicyDifference
from control_api.responses.audit import Document
from control_api.store.queries import documents
from policies.sets.policy_set import ROLE


async def diff_policies(
    app: AppContext, caller: Caller, request: Annotated[UndecodedRequest, PolicySetAsked]
) -> PolicyDifference | Document:
    """Say exactly what these policies, in place of those in force, would newly allow and deny.

    Changes nothing. A row holds for every request that it matches, as far as the policies go: the
    registry and sessions are left out.
    """
    async with app.store.snapshot(caller.tenant_id) as connection:
        in_force = await documents.array_of(connection, caller.tenant_id, ROLE)
    job = Job("diff", {}, (request.body, in_force))
    return Document("application/json", await app.analyses.answer(caller.tenant_id, job))
