"""Create a policy: in force, here and in every connected sidecar, when the answer leaves."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.policies import policy_change
from control_api.presenters import shown_policy
from control_api.requests.policy import PolicyAsked
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.ground.ids import prefixed


async def create_policy(service: AppContext, caller: Caller, asked: PolicyAsked) -> PolicyShown:
    """Create a policy; its name must be free among the active ones."""
    policy_id = prefixed("pol_", service.entropy(16))

    async def work(tx: Transaction) -> StoredPolicy:
        await policy_change.refuse_taken(tx, asked.name)
        row = _new(asked, policy_id, tx.now)
        await policies.add(tx.connection, tx.tenant_id, [row])
        await policy_change.record(tx, [row], "created", caller.by, service.new_id)
        await policy_change.publish(tx, {row.agent_role})
        return row

    return shown_policy(await service.store.write(caller.tenant.tenant_id, work))


def _new(asked: PolicyAsked, policy_id: str, now: int) -> StoredPolicy:
    return StoredPolicy(
        policy_id=policy_id,
        name=asked.name,
        agent_role=asked.agent_role,
        body=asked.body(),
        version=1,
        user_modified=False,
        file=None,
        file_body=None,
        created_at=now,
        updated_at=now,
        deleted_at=None,
    )
