"""Queries over the state of the comparison of counts with the log: one row per log. Compares
nothing."""

from dataclasses import dataclass

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import count_checks
from control_api.store.schema.statements import columns_of, insert_if_absent, of_tenant, values_of

ASKED_FOR = 0
"""In place of a lease: somebody asked for a comparison, and none has begun since."""


@dataclass(frozen=True, slots=True)
class CountCheck:
    """When the counts of a log were last compared with its entries (microseconds since 1970 UTC),
    and how they differed; None if they were never compared, or did not differ."""

    checked_at: int | None = None
    reason: str | None = None
    leased_until: int | None = None

    def is_running(self, now: int) -> bool:
        """Whether a comparison is under way, or was asked for."""
        return self.is_leased(now) or self.leased_until == ASKED_FOR

    def is_leased(self, now: int) -> bool:
        """Whether a process compares now, or died while it did."""
        return self.leased_until is not None and self.leased_until > now


async def state(connection: AsyncConnection, tenant_id: str) -> CountCheck:
    query = select(*columns_of(count_checks)).where(of_tenant(count_checks, tenant_id))
    row = (await connection.execute(query)).one_or_none()
    return CountCheck() if row is None else CountCheck(*row)


async def claim(connection: AsyncConnection, tenant_id: str, now: int, until: int) -> bool:
    """Leases the log to the caller until `until`; False while another process has the lease."""
    await _create(connection, tenant_id)
    free = or_(count_checks.c.leased_until.is_(None), count_checks.c.leased_until <= now)
    leased = update(count_checks).where(of_tenant(count_checks, tenant_id), free)
    return (await connection.execute(leased.values(leased_until=until))).rowcount == 1


async def ask(connection: AsyncConnection, tenant_id: str) -> None:
    """Has a comparison begin at once. One under way can't save what it finds."""
    await _create(connection, tenant_id)
    await connection.execute(
        update(count_checks)
        .where(of_tenant(count_checks, tenant_id))
        .values(leased_until=ASKED_FOR)
    )


async def renew(connection: AsyncConnection, tenant_id: str, lease: int, until: int) -> bool:
    """Moves the end of the caller's lease from `lease` to `until`; False if it was lost."""
    mine = (of_tenant(count_checks, tenant_id), count_checks.c.leased_until == lease)
    done = await connection.execute(update(count_checks).where(*mine).values(leased_until=until))
    return done.rowcount == 1


async def release(connection: AsyncConnection, tenant_id: str, lease: int) -> None:
    """Ends the lease that ends at `lease`, unless it was lost: the comparison under it broke off,
    and the next process to look begins it again."""
    await renew(connection, tenant_id, lease, ASKED_FOR)


async def put(connection: AsyncConnection, tenant_id: str, lease: int, after: CountCheck) -> None:
    """Replaces the state, unless the lease that ends at `lease` was lost meanwhile."""
    mine = (of_tenant(count_checks, tenant_id), count_checks.c.leased_until == lease)
    await connection.execute(update(count_checks).where(*mine).values(values_of(after)))


async def _create(connection: AsyncConnection, tenant_id: str) -> None:
    """Inserts the row of a log that has none."""
    row = {"tenant_id": tenant_id, **values_of(CountCheck())}
    await connection.execute(insert_if_absent(count_checks, connection.dialect).values(row))
