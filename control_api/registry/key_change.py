"""Builds and stores API keys, and checks references to them, inside the caller's transaction.

Knows the row, the published document and the log entry of a key. Knows no operation.
"""

from dataclasses import asdict

from control_api.edge.requests import Repeated
from control_api.registry.models import NewKey, listed_key
from control_api.store.queries import key_rows
from control_api.store.queries.key_rows import StoredKey
from control_api.store.transaction import Transaction
from policies.ground.errors import invalid
from policies.ground.ids import prefixed
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_document, key_name
from policies.trail.change import ObjectChange, change_record

_DAY = 86_400_000_000  # microseconds


def build_key(request: NewKey, secret: str, entropy: bytes, now: int) -> StoredKey:
    """A new key as the store keeps it. `entropy` is 16 random bytes for the key's id; `now` is in
    microseconds. Raises `Invalid` if it would be a sidecar's without agents."""
    days, sidecar_ids = request.days, request.sidecar_ids
    return StoredKey(
        key_id=prefixed("key_", entropy),
        name=request.name,
        scope=request.scope,
        # The secret itself is never stored, so a copy of the database opens nothing.
        digest=key_digest(secret),
        bound_agent_id=request.bound_agent_id,
        permitted_roles=tuple(request.permitted_roles or ()),
        expires_at=None if days is None else now + days * _DAY,
        created_at=now,
        agent_ids=request.spoken_for,
        sidecar_ids=None if sidecar_ids is None else tuple(sidecar_ids),
    )


async def add_key(tx: Transaction, key: StoredKey, by: str, record_id: str) -> None:
    """Store a key, publish its document and log who created it. None of these holds the secret.
    Raises `Conflict` if the same request created it before."""
    if await key_rows.known(tx.connection, tx.tenant_id, key.key_id):
        raise Repeated("key", key.key_id)
    await key_rows.add(tx.connection, tx.tenant_id, key)
    await tx.publish({key_name(key.digest): key_document(key.published())})
    detail = {"name": key.name, "scope": key.scope, "expires_at": key.expires_at}
    change = key_change(tx, None, key)
    await tx.append(
        change_record("key.created", key.key_id, by, detail, record_id=record_id, change=change)
    )


def key_change(tx: Transaction, before: StoredKey | None, after: StoredKey | None) -> ObjectChange:
    """A change of a key that `tx` published, as the log records it."""
    shown = [None if key is None else asdict(listed_key(key)) for key in (before, after)]
    published = [
        each
        for key in {key.digest: key for key in (before, after) if key is not None}.values()
        # The document's own name holds the digest of the secret.
        for each in tx.published(key_name(key.digest), f"key/{key.key_id}")
    ]
    return ObjectChange(shown[0], shown[1], published=published)


async def refuse_unknown_key(tx: Transaction, key_id: str | None) -> None:
    """Raise `Invalid` if an agent would be bound to a key that does not exist or was revoked."""
    # No key could speak for such an agent, and the agent's owner would not see why.
    if key_id is not None and await key_rows.get(tx.connection, tx.tenant_id, key_id) is None:
        raise invalid(["bound_key_id: is not a live key of this tenant"])
