"""Creates a policy: it is in force in this process, and published to sidecars, before the response
is sent."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import policy_change
from control_api.domain.policy_plan import first_version
from control_api.requests.policy import PolicyAsked
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies
from control_api.store.transaction import Transaction
from policies.ground.ids import prefixed


async def create_policy(app: AppContext, caller: Caller, request: PolicyAsked) -> PolicyShown:
    """Create a policy; no active policy may have the same name."""
    policy_id = prefixed("pol_", app.entropy(16))

    async def work(tx: Transaction) -> PolicyShown:
        await policy_change.refuse_taken(tx, request.name)
        row = first_version(policy_id, request.body(), tx.now)
        await policies.add(tx.connection, tx.tenant_id, [row])
        await policy_change.publish(tx, {row.agent_role})
        new = policy_change.Changed(None, row)
        await policy_change.record(app, tx, [new], "created", caller.by)
        return await policy_change.shown(tx, row)

    return await app.store.write(caller.tenant_id, work)
