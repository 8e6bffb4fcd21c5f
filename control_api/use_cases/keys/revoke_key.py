"""Revokes an API key: it stops working in this process before the response is sent, and in every
connected sidecar within a second.

The revocation takes effect in `auth/authenticate.py`, which refuses a key without a document.
"""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import key_change
from control_api.requests.key import KeyRequest
from control_api.responses.audit import Empty
from control_api.store.queries import keys
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound
from policies.sets.policy_set import key_name


async def revoke_key(app: AppContext, caller: Caller, request: KeyRequest) -> Empty:
    """Revoke an API key at once; a key revoked before is not found."""

    async def work(tx: Transaction) -> None:
        key = await keys.get(tx.connection, tx.tenant_id, request.key_id)
        if key is None:
            raise NotFound(f"no such key: `{request.key_id}`")
        await keys.revoke(tx.connection, tx.tenant_id, key.key_id, tx.now)
        # The document is removed, not marked: sidecars, too, refuse a key without one.
        await tx.publish({key_name(key.digest): None})
        detail = {"name": key.name, "scope": key.scope}
        change = key_change(tx, key, None)
        await app.log_change(tx, "key.revoked", key.key_id, caller.by, detail, change)

    await app.store.write(caller.tenant_id, work)
    return Empty()
