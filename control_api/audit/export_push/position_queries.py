"""Queries how far each export target has acknowledged each tenant's log."""

from typing import NamedTuple

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.purges import first_kept
from control_api.store.schema.features import export_positions
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import insert_if_absent, of_tenant


class Waiting(NamedTuple):
    """A tenant's log with entries that the export target has not acknowledged. `next_seq` is the
    first of them, or None before the first push. `lease` belongs to the process that pushes the
    log, or that pushed it last."""

    tenant_id: str
    size: int
    next_seq: int | None
    lease: str | None
    leased_until: int | None

    @property
    def lag(self) -> int:
        return self.size - (self.next_seq or 0)


async def waiting(connection: AsyncConnection, target: str) -> list[Waiting]:
    """Return the logs of all tenants that have entries which the target has not acknowledged."""
    mine = export_positions.c
    at = func.coalesce(mine.next_seq, 0)
    query = (
        select(
            log_heads.c.tenant_id, log_heads.c.size, mine.next_seq, mine.lease, mine.leased_until
        )
        .select_from(
            log_heads.outerjoin(
                export_positions,
                of_tenant(export_positions, log_heads.c.tenant_id) & (mine.target == target),
            )
        )
        .where(log_heads.c.size > at)
        .order_by(log_heads.c.tenant_id)
    )
    return [Waiting(*row) for row in await connection.execute(query)]


async def claim(
    connection: AsyncConnection, tenant_id: str, target: str, lease: str, now: int, until: int
) -> int | None:
    """Take the lease on pushing this log to the target until the time `until`, and return the first
    entry to push. Return None while another process holds the lease. A new target begins with the
    oldest entry that is kept."""
    kept = (await connection.execute(select(first_kept(tenant_id)))).scalar_one()
    first = {
        "tenant_id": tenant_id,
        "target": target,
        "next_seq": kept,
        "lease": "",
        "leased_until": 0,
    }
    await connection.execute(insert_if_absent(export_positions, connection.dialect).values(first))
    mine = (of_tenant(export_positions, tenant_id), export_positions.c.target == target)
    claimed = (
        update(export_positions)
        .where(
            *mine, or_(export_positions.c.lease == lease, export_positions.c.leased_until <= now)
        )
        .values(lease=lease, leased_until=until)
    )
    if not (await connection.execute(claimed)).rowcount:
        return None
    found = select(export_positions.c.next_seq).where(*mine)
    next_seq: int = (await connection.execute(found)).scalar_one()
    return next_seq


async def save(
    connection: AsyncConnection,
    tenant_id: str,
    target: str,
    lease: str,
    until: int,
    next_seq: int | None = None,
) -> bool:
    """Save the position that the target has acknowledged, if given, and renew the lease until the
    time `until`. Return False, and save nothing, if another process has taken the lease."""
    values = {"leased_until": until}
    if next_seq is not None:
        values["next_seq"] = next_seq
    saved = (
        update(export_positions)
        .where(
            of_tenant(export_positions, tenant_id),
            export_positions.c.target == target,
            export_positions.c.lease == lease,
        )
        .values(values)
    )
    return (await connection.execute(saved)).rowcount == 1
