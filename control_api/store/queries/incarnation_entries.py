"""The entry by which an operator accepted the current incarnation of a tenant's log. Verifies
nothing: a proof of the entry does."""

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.checkpoints import StoredIncarnation
from control_api.store.queries.rows import columns_of
from control_api.store.schema.log import log_entries
from control_api.store.schema.proofs import incarnations


async def current(
    connection: AsyncConnection, tenant_id: str
) -> tuple[StoredIncarnation, str] | None:
    """The incarnation and the id of its entry; None for a log's first, and after its entry was
    purged."""
    row = (await connection.execute(_WITH_ENTRY, {"tenant": tenant_id})).one_or_none()
    return None if row is None else (StoredIncarnation(*row[:-1]), row.eid)


_WITH_ENTRY = (
    select(*columns_of(incarnations), log_entries.c.eid)
    .join(
        log_entries,
        (log_entries.c.tenant_id == incarnations.c.tenant_id)
        & (log_entries.c.seq == incarnations.c.seq),
    )
    .where(incarnations.c.tenant_id == bindparam("tenant"), log_entries.c.kind == "incarnation")
    .order_by(incarnations.c.number.desc())
    .limit(1)
)
