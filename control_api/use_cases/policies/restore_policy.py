"""Restores a policy to the definition in its file (`service.md` 2.1, section 9)."""

from dataclasses import replace

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import policy_change
from control_api.requests.policy import PolicyRequest
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.ground.canonical import encode
from policies.ground.errors import Conflict, NotFound


async def restore_policy(app: AppContext, caller: Caller, request: PolicyRequest) -> PolicyShown:
    """Restore a policy to its file's definition; a deleted policy becomes active again."""

    async def work(tx: Transaction) -> PolicyShown:
        row = await policies.get(tx.connection, tx.tenant_id, request.policy_id)
        if row is None:
            raise NotFound(f"no such policy: `{request.policy_id}`")
        restored = _restored(row, tx.now)
        if restored is None:
            return await policy_change.shown(tx, row)
        # Another policy may have taken the name while this one was deleted or had another.
        if row.deleted_at is not None or restored.name != row.name:
            await policy_change.refuse_taken(tx, restored.name)
        await policies.put(tx.connection, tx.tenant_id, restored)
        await policy_change.publish(tx, {row.agent_role, restored.agent_role})
        changed = policy_change.Changed(row, restored)
        await policy_change.record(app, tx, [changed], "restored", caller.by)
        return await policy_change.shown(tx, restored)

    return await app.store.write(caller.tenant_id, work)


def _restored(row: StoredPolicy, now: int) -> StoredPolicy | None:
    """The restored row; None if the policy already matches its file."""
    body = row.file_body
    if body is None:
        raise Conflict(f"no file defines policy `{row.policy_id}`: there is nothing to restore")
    if row.deleted_at is None and not row.user_modified and encode(row.body) == encode(body):
        return None
    return replace(
        row,
        name=body["name"],
        agent_role=body["agent_role"],
        body=body,
        version=row.version + 1,
        user_modified=False,  # from now on, a reload of the files applies to it again
        updated_at=now,
        deleted_at=None,
    )
