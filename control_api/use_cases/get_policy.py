"""Show one active policy."""

from control_api.asked import Asked, Identifier
from control_api.caller import Caller
from control_api.management_shapes import PolicyShown
from control_api.service import Service
from control_api.store import policies
from control_api.use_cases.rendered import active_policy, shown_policy


class AskedPolicy(Asked):
    """Which policy."""

    policy_id: Identifier


async def get_policy(service: Service, caller: Caller, asked: AskedPolicy) -> PolicyShown:
    """Show one active policy; a deleted one is not found."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        policy = await policies.get(connection, caller.tenant.tenant_id, asked.policy_id)
    return shown_policy(active_policy(policy, asked.policy_id))
