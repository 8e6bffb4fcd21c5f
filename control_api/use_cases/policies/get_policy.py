"""Shows one active policy."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.policy_change import active_policy
from control_api.presenters import shown_policy
from control_api.requests.policy import PolicyRequest
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies


async def get_policy(app: AppContext, caller: Caller, request: PolicyRequest) -> PolicyShown:
    """Show one active policy; a deleted one is not found."""
    async with app.store.reading(caller.tenant_id) as connection:
        found = await policies.get(connection, caller.tenant_id, request.policy_id)
        policy = active_policy(found, request.policy_id)
        authors = await policies.authors(connection, caller.tenant_id, [policy])
    return shown_policy(policy, authors[policy.policy_id])
