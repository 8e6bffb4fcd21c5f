"""Shows what the file of a policy defines."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.policy import PolicyRequest
from control_api.responses.management import PolicyFields
from control_api.store.queries import policies
from policies.ground.errors import NotFound


async def show_policy_file(app: AppContext, caller: Caller, request: PolicyRequest) -> PolicyFields:
    """Show what a policy's file defines, which a restore would put in force.

    The policy may have been changed by the API since, or deleted.
    """
    async with app.store.reading(caller.tenant_id) as connection:
        row = await policies.get(connection, caller.tenant_id, request.policy_id)
    if row is None:
        raise NotFound(f"no such policy: `{request.policy_id}`")
    if row.file_body is None:
        raise NotFound(f"no file defines policy `{request.policy_id}`")
    return PolicyFields(**row.file_body)
