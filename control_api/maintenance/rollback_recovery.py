"""A store that was put back to an older state of itself, as by a failover to a copy that lagged:
how a tenant goes on without giving back to anyone what was taken away in the time that was lost.

What was published and lost is known from the head that was signed for it. Each document that
differs is one whose newest state the store does not know, so nothing is decided by it any more:

    a key          is revoked
    a session      is revoked
    an agent       is a draft again
    a role         has no policy in force, until one of its policies is written again
    the tenant     masks what is personal, and is frozen: a freeze may be among what was lost

Everything else goes on. The revision leaps over all that were ever seen, so that no sidecar takes
what it holds of the lost ones for what is meant now. The log says so itself, in an entry of its own
kind; what sidecars had shipped and the log has lost they send again. Knows no way by which it is
noticed.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import update

from control_api.settings import Settings
from control_api.store.queries import agents, ended_sessions, sessions, tenants
from control_api.store.schema.tables import api_keys
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.tenants.tenant_settings import effective
from policies.sets.policy_set import (
    SESSION,
    TENANT,
    agent_document,
    session_document,
    tenant_document,
)
from policies.trail.record import incarnation_record

LEAP = 1000
"""Revisions beyond the newest that was seen: another replica may have seen a few more."""
_AGENT, _KEY = "agent/", "key/"
_FREEZE_REASON = "the store was put back, and the newest state of the tenant's settings is lost"
_log = logging.getLogger("sluice.put_back")


class RollbackRecovery:
    """Takes a tenant from what the store holds to what may be decided by."""

    def __init__(self, store: Store, settings: Settings, new_id: Callable[[], str]) -> None:
        self._store = store
        self._settings = settings
        self._new_id = new_id

    async def go_on(self, tenant_id: str, seen: int, names: Iterable[str]) -> None:
        """`seen` is the newest revision that was signed, `names` the documents that were other
        then. Nothing is done where the store has moved beyond it meanwhile."""
        doubted = sorted(names)

        async def work(tx: Transaction) -> int | None:
            held = await tx.lock()
            if held >= seen:
                return None
            await tx.advance_revision(seen + LEAP)  # beyond all that were ever seen
            await tx.publish({name: await self._safe(tx, name) for name in doubted})
            record = incarnation_record(held, seen, len(doubted), record_id=self._new_id())
            await tx.append(record)
            return held

        held = await self._store.write(tenant_id, work)
        if held is not None:
            _log.error(
                "tenant `%s`: the store was put back from revision %d to %d; %d documents of which "
                "the newest state is lost are out of force until they are written again: %s",
                tenant_id,
                seen,
                held,
                len(doubted),
                ", ".join(name for name in doubted[:20] if not name.startswith(_KEY)),
            )

    async def _safe(self, tx: Transaction, name: str) -> bytes | None:
        """The document by which nothing is allowed that was not allowed in the lost time."""
        if name.startswith(_KEY):
            await _revoke_key(tx, bytes.fromhex(name.removeprefix(_KEY)))
        elif name.startswith(SESSION):
            return await _revoke_session(tx, name.removeprefix(SESSION))
        elif name.startswith(_AGENT):
            return await _suspend(tx, name.removeprefix(_AGENT))
        elif name == TENANT:
            tenant = await tenants.get(tx.connection, tx.tenant_id)
            assert tenant is not None  # its row is locked
            tenant = replace(tenant, pii_masking=True)
            if tenant.frozen_at is None:
                tenant = replace(tenant, frozen_at=tx.now, freeze_reason=_FREEZE_REASON)
            await tenants.put(tx.connection, tenant)
            return tenant_document(effective(tenant, self._settings))
        return None


async def _revoke_key(tx: Transaction, digest: bytes) -> None:
    await tx.connection.execute(
        update(api_keys)
        .where(
            api_keys.c.tenant_id == tx.tenant_id,
            api_keys.c.digest == digest,
            api_keys.c.revoked_at.is_(None),
        )
        .values(revoked_at=tx.now)
    )


async def _revoke_session(tx: Transaction, session_id: str) -> bytes:
    row = await sessions.find(tx.connection, tx.tenant_id, session_id)
    if row is None:
        # Claimed in the lost time: the id must never come back to life.
        await ended_sessions.bury(tx.connection, tx.tenant_id, session_id, tx.now)
    elif row.revoked_at is None:
        await sessions.revoke(tx.connection, tx.tenant_id, session_id, "put back", tx.now)
    return session_document(session_id)


async def _suspend(tx: Transaction, agent_id: str) -> bytes | None:
    agent = await agents.get(tx.connection, tx.tenant_id, agent_id)
    if agent is None:
        return None
    agent = replace(agent, status="draft", updated_at=tx.now)
    await agents.put(tx.connection, tx.tenant_id, agent)
    return agent_document(agent.published())
