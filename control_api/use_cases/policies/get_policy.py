"""Show one active policy."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import active_policy, shown_policy
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies


class AskedPolicy(RequestModel):
    """Which policy."""

    policy_id: Identifier


async def get_policy(service: AppContext, caller: Caller, asked: AskedPolicy) -> PolicyShown:
    """Show one active policy; a deleted one is not found."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        policy = await policies.get(connection, caller.tenant.tenant_id, asked.policy_id)
    return shown_policy(active_policy(policy, asked.policy_id))
