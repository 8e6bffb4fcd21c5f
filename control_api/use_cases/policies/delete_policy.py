"""Delete a policy, softly: it decides no more, and its history stays."""

from dataclasses import replace

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.policies import policy_change
from control_api.requests.policy import PolicyRequest
from control_api.responses.audit import Empty
from control_api.store.queries import policies
from control_api.store.transaction import Transaction


async def delete_policy(service: AppContext, caller: Caller, asked: PolicyRequest) -> Empty:
    """Delete a policy; a second time it is not found."""

    async def work(tx: Transaction) -> None:
        row = policy_change.active_policy(
            await policies.get(tx.connection, tx.tenant_id, asked.policy_id), asked.policy_id
        )
        gone = replace(row, version=row.version + 1, updated_at=tx.now, deleted_at=tx.now)
        await policies.put(tx.connection, tx.tenant_id, gone)
        await policy_change.record(tx, [gone], "deleted", caller.by, service.new_id)
        await policy_change.publish(tx, {gone.agent_role})

    await service.store.write(caller.tenant.tenant_id, work)
    return Empty()
