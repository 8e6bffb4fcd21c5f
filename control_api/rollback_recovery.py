"""Recovers a tenant after the store was restored to an older state, for example by a failover to a
replica that lagged. Access that was revoked in the lost period must not come back.

The head in Redis that was signed for the lost revisions tells which documents differ. The store
does not have their newest state, so they are put out of force:

    a key          is revoked
    a session      is revoked
    an agent       becomes a draft
    a role         has no policy in force until one of its policies is written again
    the tenant     masks personal data and is frozen, since the lost settings may include a freeze;
                   its candidates are dropped

Everything else stays in force. The new revision is far beyond every revision ever seen, so that no
sidecar mistakes a lost document for the current one. The log records the event in an entry of its
own kind. Sidecars send the delivered records that the log has lost again. The loss itself is
detected by `control_api.policy.publishing.reconcile`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import select, update

from control_api.log.tenant_change import effective
from control_api.policy.candidates import drop_all
from control_api.registry import queries
from control_api.settings import Settings
from control_api.store.queries import session_rows, tenant_rows
from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import api_keys
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.sets.policy_set import (
    SESSION,
    TENANT,
    agent_document,
    session_document,
    tenant_document,
)
from policies.sets.source_levels import SOURCES
from policies.trail.record import incarnation_record

LEAP = 1000
"""The number added to the newest revision seen here, because another replica may have seen later
ones."""
_AGENT, _KEY = "agent/", "key/"
MAX_NAMED = 20
"""The most documents that the log line names; the others are only counted."""
_SETTINGS = {TENANT: "the tenant's settings", SOURCES: "the levels of sources"}
_FREEZE_REASON = "the store was restored to an older state; the newest tenant settings are lost"
_log = logging.getLogger("sluice.put_back")


class RollbackRecovery:
    """Changes a restored tenant so that it is safe to decide by."""

    def __init__(self, store: Store, settings: Settings, new_id: Callable[[], str]) -> None:
        self._store = store
        self._settings = settings
        self._new_id = new_id

    async def recover(self, tenant_id: str, seen: int, names: Iterable[str]) -> None:
        """Put the documents `names` out of force, which differ between the store and the newest
        signed revision, `seen`. Do nothing if the store has already passed that revision, because
        another replica has recovered it."""
        lost = sorted(names)
        named: list[str] = []

        async def work(tx: Transaction) -> int | None:
            held = await tx.lock()
            if held >= seen:
                return None
            # One transaction: if we die in it, the head in Redis is still ahead of the tenant, and
            # the next reconciliation recovers it again.
            await tx.advance_revision(seen + LEAP)
            # The tenant's document lists the candidates, so the newest of these are lost with it.
            documents = await drop_all(tx) if TENANT in lost else {}
            documents |= {name: await self._safe_document(tx, name) for name in lost}
            await tx.publish(documents)
            record = incarnation_record(held, seen, len(lost), record_id=self._new_id())
            await tx.append(record)
            named[:] = [await _in_words(tx, name) for name in lost[:MAX_NAMED]]
            return held

        held = await self._store.write(tenant_id, work)
        if held is not None:
            more = len(lost) - len(named)
            _log.error(
                "tenant `%s`: the store was restored from revision %d to %d; the newest state of "
                "%d documents is lost, and they are out of force until they are written again: %s",
                tenant_id,
                seen,
                held,
                len(lost),
                ", ".join(named)
                + (f" and {more} more" if (more := len(lost) - len(named)) else ""),
            )

    async def _safe_document(self, tx: Transaction, name: str) -> bytes | None:
        """Return a document that allows nothing that may have been denied in the lost period. None
        means to remove the document."""
        if name.startswith(_KEY):
            await _revoke_key(tx, bytes.fromhex(name.removeprefix(_KEY)))
        elif name.startswith(SESSION):
            return await _revoke_session(tx, name.removeprefix(SESSION))
        elif name.startswith(_AGENT):
            # A role needs no branch below: without a document it has no policy in force.
            return await _suspend(tx, name.removeprefix(_AGENT))
        elif name == TENANT:
            tenant = await tenant_rows.get(tx.connection, tx.tenant_id)
            assert tenant is not None  # its row is locked
            tenant = replace(tenant, pii_masking=True, candidates=None)
            if tenant.frozen_at is None:
                tenant = replace(tenant, frozen_at=tx.now, freeze_reason=_FREEZE_REASON)
            await tenant_rows.put(tx.connection, tenant)
            return tenant_document(effective(tenant, self._settings))
        return None


async def _in_words(tx: Transaction, name: str) -> str:
    """Describe a document in words that operators know: a key by its id, never by its digest."""
    kind, _, rest = name.partition("/")
    if not name.startswith(_KEY):
        return f"{kind} `{rest}`" if rest else _SETTINGS.get(kind, kind)
    digest = api_keys.c.digest == bytes.fromhex(rest)
    mine = select(api_keys.c.key_id).where(of_tenant(api_keys, tx.tenant_id), digest)
    key_id = (await tx.connection.execute(mine)).scalar_one_or_none()
    # Created in the lost period, and so dead: its row is gone with its id.
    return "a key that the restored database lacks" if key_id is None else f"key `{key_id}`"


async def _revoke_key(tx: Transaction, digest: bytes) -> None:
    await tx.connection.execute(
        update(api_keys)
        .where(
            of_tenant(api_keys, tx.tenant_id),
            api_keys.c.digest == digest,
            api_keys.c.revoked_at.is_(None),
        )
        .values(revoked_at=tx.now)
    )


async def _revoke_session(tx: Transaction, session_id: str) -> bytes:
    row = await session_rows.find(tx.connection, tx.tenant_id, session_id)
    if row is None:
        # It was claimed in the lost period. The id must never be claimed again.
        await session_rows.add_revoked(tx.connection, tx.tenant_id, session_id, tx.now)
    elif row.revoked_at is None:
        await session_rows.revoke(tx.connection, tx.tenant_id, session_id, "store restored", tx.now)
    return session_document(session_id)


async def _suspend(tx: Transaction, agent_id: str) -> bytes | None:
    agent = await queries.get(tx.connection, tx.tenant_id, agent_id)
    if agent is None:
        return None
    agent = replace(agent, status="draft", updated_at=tx.now)
    await queries.put(tx.connection, tx.tenant_id, agent)
    return agent_document(agent.published())
