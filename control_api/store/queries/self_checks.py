"""Queries over the state of the scheduled verification: one row per log. Verifies nothing."""

from dataclasses import dataclass

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import self_checks
from control_api.store.schema.statements import columns_of, insert_if_absent, of_tenant, values_of

ASKED_FOR = 0
"""In place of a lease: somebody asked for a step, and none has begun since."""
MOST_LEASED = 1_200_000_000
"""Microseconds from now within which a lease may end: twice what one lasts, since clocks differ.
One that ends later was made by a clock that ran ahead, or by hand, and counts for nothing."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How far a round over a log has come (`size`, with the tree's frontier and the last leaf), and
    what it found last. `verified_at` is when the round began that last came to the end: all that it
    verified was right then or later. Times in microseconds since 1970 UTC."""

    size: int
    frontier: bytes
    last_leaf: bytes
    started_at: int
    finished_at: int | None = None
    finished_size: int | None = None
    broken_at: str | None = None
    reason: str | None = None
    leased_until: int | None = None
    verified_at: int | None = None

    def is_leased(self, now: int) -> bool:
        """Whether a process takes a step now, or died in one."""
        return self.leased_until is not None and now < self.leased_until <= now + MOST_LEASED


async def state(connection: AsyncConnection, tenant_id: str) -> SelfCheck | None:
    query = select(*columns_of(self_checks)).where(of_tenant(self_checks, tenant_id))
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else SelfCheck(*row)


async def claim(
    connection: AsyncConnection, tenant_id: str, first: SelfCheck, now: int, until: int
) -> SelfCheck | None:
    """The state, leased to the caller until `until`; None while another process has the lease.
    `first` is the state of a log that was never verified."""
    row = {"tenant_id": tenant_id, **values_of(first)}
    await connection.execute(insert_if_absent(self_checks, connection.dialect).values(row))
    leased = (
        update(self_checks)
        .where(
            of_tenant(self_checks, tenant_id),
            or_(
                self_checks.c.leased_until.is_(None),
                self_checks.c.leased_until <= now,
                self_checks.c.leased_until > now + MOST_LEASED,
            ),
        )
        .values(leased_until=until)
    )
    if not (await connection.execute(leased)).rowcount:
        return None
    return await state(connection, tenant_id)


async def begin_round(connection: AsyncConnection, tenant_id: str, *, stopped: bool) -> None:
    """Has the next step begin a round over the whole log. A walk that is `stopped` before what it
    found goes on there instead, so that the finding stays until it is gone."""
    # `started_at` 0 makes the round due. Without its lease, a step under way can't save its state.
    again = {} if stopped else {"started_at": 0}
    await connection.execute(
        update(self_checks)
        .where(of_tenant(self_checks, tenant_id))
        .values(leased_until=ASKED_FOR, **again)
    )


async def release(connection: AsyncConnection, tenant_id: str, lease: int) -> None:
    """Ends the lease that ends at `lease`, unless it was lost: the step under it broke off, and the
    next process to look takes it again."""
    await connection.execute(
        update(self_checks)
        .where(of_tenant(self_checks, tenant_id), self_checks.c.leased_until == lease)
        .values(leased_until=ASKED_FOR)
    )


async def put(connection: AsyncConnection, tenant_id: str, lease: int, after: SelfCheck) -> None:
    """Replaces the state, unless the lease that ends at `lease` was lost meanwhile."""
    await connection.execute(
        update(self_checks)
        .where(of_tenant(self_checks, tenant_id), self_checks.c.leased_until == lease)
        .values(values_of(after))
    )
