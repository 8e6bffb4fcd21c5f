"""Replaces a key with a new one, which also takes over the agents that are bound to the old key."""

from dataclasses import replace
from typing import Any

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import key_change
from control_api.enrolment.recorded_changes import agent_change
from control_api.presenters import created_key
from control_api.requests.key import KeyRequest
from control_api.responses.keys import CreatedKey
from control_api.store.queries import agents, keys
from control_api.store.queries.keys import StoredKey
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, NotFound
from policies.ground.ids import prefixed
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import agent_document, agent_name, key_document, key_name


async def rotate_key(app: AppContext, caller: Caller, request: KeyRequest) -> CreatedKey:
    """Replace a key by a new one with the same name, scope, expiry and binding."""
    secret = make_key(app.entropy(32))
    key_id = prefixed("key_", app.entropy(16))

    async def work(tx: Transaction) -> StoredKey:
        old = await _live(tx, request.key_id)
        new = replace(old, key_id=key_id, digest=key_digest(secret), created_at=tx.now)
        # In one commit, so there is never a moment when both keys are live, or neither is.
        await keys.add(tx.connection, tx.tenant_id, new)
        await keys.revoke(tx.connection, tx.tenant_id, old.key_id, tx.now)
        documents: dict[str, bytes | None] = {
            key_name(old.digest): None,
            key_name(new.digest): key_document(new.published()),
        }
        # Bind the old key's agents to the new one: otherwise no key could speak for them.
        bound = await agents.bound_to(tx.connection, tx.tenant_id, old.key_id)
        rebound = [replace(agent, bound_key_id=new.key_id, updated_at=tx.now) for agent in bound]
        for moved in rebound:
            await agents.put(tx.connection, tx.tenant_id, moved)
            documents[agent_name(moved.agent_id)] = agent_document(moved.published())
        await tx.publish(documents)
        detail: dict[str, Any] = {"replaced_by": new.key_id, "agents": len(rebound)}
        change = key_change(tx, old, new)
        await app.log_change(tx, "key.rotated", old.key_id, caller.by, detail, change)
        for agent, moved in zip(bound, rebound, strict=True):
            detail = {"fields": ["bound_key_id"], "bound_key_id": new.key_id}
            change = agent_change(tx, agent, moved)
            await app.log_change(tx, "agent.updated", agent.agent_id, caller.by, detail, change)
        return new

    return created_key(await app.store.write(caller.tenant_id, work), secret)


async def _live(tx: Transaction, key_id: str) -> StoredKey:
    # 404 for an id that never existed, 409 for a key that was live once.
    key = await keys.get(tx.connection, tx.tenant_id, key_id)
    if key is None and not await keys.known(tx.connection, tx.tenant_id, key_id):
        raise NotFound(f"no such key: `{key_id}`")
    if key is None:
        raise Conflict(f"key `{key_id}` is revoked: create a new one")
    if not key.published().live(tx.now):
        raise Conflict(f"key `{key_id}` has expired: create a new one")
    return key
