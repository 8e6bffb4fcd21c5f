"""Creates, shows, lists, binds, rotates and revokes API keys.

A secret is shown once, in the response that creates it; the store keeps only its SHA-256.
"""

from dataclasses import asdict, replace
from typing import Annotated, Any, ClassVar

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.auth import Caller, Superadmin
from control_api.edge.answers import Done, Empty, Page, SortKey, page_of
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    Flag,
    Identifier,
    ListRequest,
    Repeated,
    RequestModel,
    Roles,
    Time,
    id_entropy,
)
from control_api.log.tenant_change import stored
from control_api.registry import queries
from control_api.registry.bundle import Registry
from control_api.registry.enrolment.pods import agent_change
from control_api.registry.models import (
    AgentPatterns,
    CreatedKey,
    KeyRequest,
    ListedKey,
    NewKey,
    ShownKey,
    SidecarPatterns,
    created_key,
    listed_key,
)
from control_api.store.queries import key_rows
from control_api.store.queries.key_rows import EnrolledKey, StoredKey
from control_api.store.transaction import Transaction
from policies.ground.canonical import micros, rfc3339
from policies.ground.errors import Conflict, NotFound, invalid
from policies.ground.ids import prefixed
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import agent_document, agent_name, key_document, key_name
from policies.trail.change import ObjectChange, change_record

_DAY = 86_400_000_000  # microseconds


def build_key(request: NewKey, secret: str, entropy: bytes, now: int) -> StoredKey:
    """Return the row of a new API key. `entropy` is 16 random bytes for the key's id; `now` is in
    microseconds. Raise `Invalid` if it is a sidecar's key without agents."""
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
        agent_ids=request.sidecar_agent_ids,
        sidecar_ids=None if sidecar_ids is None else tuple(sidecar_ids),
    )


async def add_key(tx: Transaction, key: StoredKey, by: str, record_id: str) -> None:
    """Store a key, publish its document, and record who created it. None of these holds the secret.
    Raise `Repeated`, which is a `Conflict`, if the same request created the key before."""
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
    """Return the change of a key as the log records it. `tx` must have published the key's
    document."""
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


EVERY = ("*",)


class NewBinding(RequestModel):
    """The binding. A field left out keeps its value; null or an empty list lifts a restriction.

    `agent_ids` and `sidecar_ids` are for keys of scope `sidecar`. A key can't be without
    `agent_ids`; null as `sidecar_ids` admits every id that no other live key uses.
    """

    example: ClassVar[dict[str, Any]] = {
        "bound_agent_id": "agt_loans",
        "permitted_roles": ["loan_underwriter"],
    }

    key_id: Identifier
    bound_agent_id: Identifier | None = None
    permitted_roles: Roles | None = None
    agent_ids: AgentPatterns | None = None
    sidecar_ids: SidecarPatterns | None = None


def _with_agents_and_sidecars(key: StoredKey, request: NewBinding) -> StoredKey:
    """Return the key with the agents and sidecar ids that the request gives it. Raise `Invalid` if
    the key is not a sidecar's, or would be left without agents."""
    names = request.model_fields_set & {"agent_ids", "sidecar_ids"}
    if not names:
        return key
    if key.scope != "sidecar":
        raise invalid([f"{name}: only a key of scope `sidecar` has it" for name in sorted(names)])
    agent_ids = key.agent_ids or EVERY
    # A key from before has every sidecar too, until the request says otherwise.
    sidecar_ids = EVERY if key.agent_ids is None else key.sidecar_ids
    if "agent_ids" in names:
        if request.agent_ids is None:
            raise invalid(['agent_ids: can\'t be lifted; `["*"]` is every agent'])
        agent_ids = tuple(request.agent_ids)
    if "sidecar_ids" in names:
        sidecar_ids = None if request.sidecar_ids is None else tuple(request.sidecar_ids)
    return replace(key, agent_ids=agent_ids, sidecar_ids=sidecar_ids)


async def bind_key(registry: Registry, caller: Caller, request: NewBinding) -> Done:
    """Bind a key to an agent or to roles, or unbind it; in force before the response is sent."""

    async def work(tx: Transaction) -> None:
        bound = key = await _unrevoked(tx.connection, tx.tenant_id, request.key_id)
        if "bound_agent_id" in request.model_fields_set:
            bound = replace(bound, bound_agent_id=request.bound_agent_id)
        if "permitted_roles" in request.model_fields_set:
            bound = replace(bound, permitted_roles=tuple(request.permitted_roles or ()))
        bound = _with_agents_and_sidecars(bound, request)
        if bound == key:
            return  # no log entry, no new revision: sidecars have nothing to fetch
        if bound.bound_agent_id != key.bound_agent_id:
            await key_rows.add_former_agent(tx.connection, tx.tenant_id, key)
        await key_rows.bind(tx.connection, tx.tenant_id, bound)
        await tx.publish({key_name(key.digest): key_document(bound.published())})
        detail = {
            "bound_agent_id": bound.bound_agent_id,
            "permitted_roles": list(bound.permitted_roles),
            **_agents_and_sidecars_of(bound),
        }
        change = key_change(tx, key, bound)
        await registry.changes.record(tx, "key.bound", key.key_id, caller.by, detail, change)

    await registry.store.write(caller.tenant_id, work)
    return Done()


def _agents_and_sidecars_of(key: StoredKey) -> dict[str, list[str] | None]:
    """Return the agents and sidecar ids that the key may speak for, as the log shows them. Empty if
    it is no sidecar's key."""
    if key.agent_ids is None:
        return {}
    sidecar_ids = None if key.sidecar_ids is None else list(key.sidecar_ids)
    return {"agent_ids": list(key.agent_ids), "sidecar_ids": sidecar_ids}


async def create_key(registry: Registry, caller: Caller, request: NewKey) -> CreatedKey:
    """Create an API key; its secret is shown only in this response."""
    # Drawn once, since `work` runs again after a conflict.
    secret = make_key(registry.entropy(32))
    tenant_id = caller.tenant_id
    entropy = id_entropy(request.idempotency_key, tenant_id, registry.entropy)

    async def work(tx: Transaction) -> StoredKey:
        key = build_key(request, secret, entropy, tx.now)
        await add_key(tx, key, caller.by, registry.changes.new_id())
        return key

    return created_key(await registry.store.write(tenant_id, work), secret)


async def get_key(registry: Registry, caller: Caller, request: KeyRequest) -> ShownKey:
    """Show an API key that is not revoked, without its secret, and the sidecars that use it."""
    async with registry.store.reading(caller.tenant_id) as connection:
        key = await _unrevoked(connection, caller.tenant_id, request.key_id)
        used = await queries.used_by(connection, caller.tenant_id, request.key_id)
    return ShownKey(**asdict(listed_key(key)), sidecars=used)


async def _unrevoked(connection: AsyncConnection, tenant_id: str, key_id: str) -> StoredKey:
    if (key := await key_rows.get(connection, tenant_id, key_id)) is None:
        raise NotFound(f"no such key: `{key_id}`")
    return key


class KeysRequest(ListRequest):
    """The keys to list: those that were created, or with `enrolled` those that pods enrolled for,
    which are as many as there are pods."""

    enrolled: Annotated[
        Flag, says("List the keys that pods enrolled for, instead of the others.")
    ] = False
    expires_before: Annotated[
        Time | None, says("Only keys that have expired by this time, or will have.")
    ] = None


async def list_keys(registry: Registry, caller: Caller, request: KeysRequest) -> Page[ListedKey]:
    """List API keys that are not revoked, newest first, without their secrets.

    With `enrolled`, list the keys that pods enrolled for and that have not expired. One of an agent
    that is no longer approved, or has another workload, is listed, but dead.
    """
    tenant_id, after, limit = caller.tenant_id, request.after(int, str), request.limit + 1
    before = None if request.expires_before is None else micros(request.expires_before)
    async with registry.store.reading(tenant_id) as connection:
        if request.enrolled:
            now = registry.clock.now()
            pods = await key_rows.page_of_enrolled(connection, tenant_id, now, after, limit, before)
            return page_of(pods, request.limit, _position, _listed_enrolled_key)
        rows = await key_rows.page(connection, tenant_id, after, limit, before)
    return page_of(rows, request.limit, _position, listed_key)


def _position(key: StoredKey | EnrolledKey) -> SortKey:
    return key.created_at, key.key_id


def _listed_enrolled_key(row: EnrolledKey) -> ListedKey:
    """Return the key of an enrolled pod as the list of keys shows it. Its name is the pod's
    name."""
    return ListedKey(
        key_id=row.key_id,
        name=row.pod,
        scope=row.scope,
        bound_agent_id=row.agent_id,
        permitted_roles=[],
        expires_at=rfc3339(row.expires_at),
        created_at=rfc3339(row.created_at),
        agent_ids=[row.agent_id] if row.scope == "sidecar" else None,
        sidecar_ids=None,
    )


class ProvisionedKey(NewKey):
    """The key to create, and its tenant."""

    example: ClassVar[dict[str, Any]] = NewKey.example

    tenant_id: Identifier


async def provision_key(
    registry: Registry, caller: Superadmin, request: ProvisionedKey
) -> CreatedKey:
    """Create an API key for a tenant; its secret is shown only in this response."""
    secret = make_key(registry.entropy(32))
    entropy = id_entropy(request.idempotency_key, request.tenant_id, registry.entropy)

    async def work(tx: Transaction) -> StoredKey:
        tenant = await stored(tx.connection, request.tenant_id)
        # Every key of a deactivated tenant is refused, so a new one would look broken.
        if not tenant.active:
            raise Conflict(f"tenant `{tenant.tenant_id}` is deactivated: reactivate it first")
        key = build_key(request, secret, entropy, tx.now)
        await add_key(tx, key, caller.by, registry.changes.new_id())
        return key

    return created_key(await registry.store.write(request.tenant_id, work), secret)


async def revoke_key(registry: Registry, caller: Caller, request: KeyRequest) -> Empty:
    """Revoke an API key at once; a key revoked before is not found."""

    async def work(tx: Transaction) -> None:
        key = await _unrevoked(tx.connection, tx.tenant_id, request.key_id)
        await key_rows.revoke(tx.connection, tx.tenant_id, key.key_id, tx.now)
        # The document is removed, not marked: sidecars, too, refuse a key without one.
        await tx.publish({key_name(key.digest): None})
        detail = {"name": key.name, "scope": key.scope}
        change = key_change(tx, key, None)
        await registry.changes.record(tx, "key.revoked", key.key_id, caller.by, detail, change)

    await registry.store.write(caller.tenant_id, work)
    return Empty()


async def rotate_key(registry: Registry, caller: Caller, request: KeyRequest) -> CreatedKey:
    """Replace a key by a new one with the same name, scope, expiry and binding."""
    secret = make_key(registry.entropy(32))
    key_id = prefixed("key_", registry.entropy(16))

    async def work(tx: Transaction) -> StoredKey:
        old = await _live(tx, request.key_id)
        new = replace(old, key_id=key_id, digest=key_digest(secret), created_at=tx.now)
        # In one commit, so there is never a moment when both keys are live, or neither is.
        await key_rows.add(tx.connection, tx.tenant_id, new)
        await key_rows.revoke(tx.connection, tx.tenant_id, old.key_id, tx.now)
        documents: dict[str, bytes | None] = {
            key_name(old.digest): None,
            key_name(new.digest): key_document(new.published()),
        }
        # Bind the old key's agents to the new one: otherwise no key could speak for them.
        bound = await queries.bound_to(tx.connection, tx.tenant_id, old.key_id)
        rebound = [replace(agent, bound_key_id=new.key_id, updated_at=tx.now) for agent in bound]
        for moved in rebound:
            await queries.put(tx.connection, tx.tenant_id, moved)
            documents[agent_name(moved.agent_id)] = agent_document(moved.published())
        await tx.publish(documents)
        detail: dict[str, Any] = {"replaced_by": new.key_id, "agents": len(rebound)}
        change = key_change(tx, old, new)
        await registry.changes.record(tx, "key.rotated", old.key_id, caller.by, detail, change)
        for agent, moved in zip(bound, rebound, strict=True):
            detail = {"fields": ["bound_key_id"], "bound_key_id": new.key_id}
            change = agent_change(tx, agent, moved)
            await registry.changes.record(
                tx, "agent.updated", agent.agent_id, caller.by, detail, change
            )
        return new

    return created_key(await registry.store.write(caller.tenant_id, work), secret)


async def _live(tx: Transaction, key_id: str) -> StoredKey:
    # 404 for an id that never existed, 409 for a key that was live once.
    try:
        key = await _unrevoked(tx.connection, tx.tenant_id, key_id)
    except NotFound:
        if await key_rows.known(tx.connection, tx.tenant_id, key_id):
            raise Conflict(f"key `{key_id}` is revoked: create a new one") from None
        raise
    if not key.published().live(tx.now):
        raise Conflict(f"key `{key_id}` has expired: create a new one")
    return key
