"""Deletes a policy: it no longer decides anything, but its history remains."""

from dataclasses import replace

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import policy_change
from control_api.requests.policy import PolicyRequest
from control_api.responses.audit import Empty
from control_api.store.queries import policies
from control_api.store.transaction import Transaction


async def delete_policy(app: AppContext, caller: Caller, request: PolicyRequest) -> Empty:
    """Delete a policy; a policy deleted before is not found."""

    async def work(tx: Transaction) -> None:
        row = policy_change.active_policy(
            await policies.get(tx.connection, tx.tenant_id, request.policy_id), request.policy_id
        )
        # The deletion, too, is a version in the policy's history.
        deleted = replace(row, version=row.version + 1, updated_at=tx.now, deleted_at=tx.now)
        await policies.put(tx.connection, tx.tenant_id, deleted)
        await policy_change.publish(tx, {deleted.agent_role})
        changed = policy_change.Changed(row, deleted)
        await policy_change.record(app, tx, [changed], "deleted", caller.by)

    await app.store.write(caller.tenant_id, work)
    return Empty()
