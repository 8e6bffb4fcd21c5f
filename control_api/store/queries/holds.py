"""Queries over legal holds, and the first entry that a hold keeps. Knows nothing of erasure or
purge.

A hold covers the entries of a session or an agent, or those whose opening names a user. With
masking, a user is recorded as a mask, which many users share: such a hold covers all of them,
because keeping too much loses no evidence.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import FACETS, FacetValue, first_entry, indexed_size
from control_api.store.schema.log import entries_with_openings, holds, log_entries, openings
from control_api.store.schema.statements import (
    Position,
    columns_of,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import sessions
from policies.trail.change import Hold
from policies.trail.record import masked_user

_FACETS = {"session": "session_id", "agent": "agent_id", "user": "user_id"}


@dataclass(frozen=True, slots=True)
class StoredHold:
    """A legal hold as stored. `seq` is the entry of the log that recorded its placement. Times in
    microseconds since 1970 UTC."""

    hold_id: str
    object_type: str
    object_id: str
    reason: str
    placed_by: str
    placed_at: int
    seq: int
    released_by: str | None = None
    released_at: int | None = None

    def recorded(self) -> Hold:
        """Return the hold in the form that entries of the log have, without its `seq`."""
        return Hold(**{name: getattr(self, name) for name in Hold._fields})


class ActiveHolds:
    """The holds of a tenant that are not released, grouped by the session, agent or user that they
    cover."""

    def __init__(self, active: list[StoredHold]) -> None:
        self.ids = [hold.hold_id for hold in active]
        self.covered: dict[str, dict[str, list[str]]] = {name: {} for name in _FACETS.values()}
        for hold in active:
            covered = self.covered[_FACETS[hold.object_type]]
            for value in _values(hold):
                covered.setdefault(value, []).append(hold.hold_id)

    def __bool__(self) -> bool:
        return bool(self.ids)

    def over(self, session_id: str | None, agent_id: str | None, user_id: str | None) -> list[str]:
        """Return the ids of the holds that cover an entry or a session with these values."""
        found: list[str] = []
        for name, value in (
            ("session_id", session_id),
            ("agent_id", agent_id),
            ("user_id", user_id),
        ):
            if value is not None:
                found += self.covered[name].get(value, ())
        return found

    def sessions(self) -> ColumnElement[bool]:
        """Return the SQL condition that a row of `sessions` is covered by a hold."""
        # A comparison with a missing agent is neither true nor false, and so is its negation.
        columns = ((func.coalesce(sessions.c[name], ""), name) for name in self.covered)
        return or_(*(column.in_(sorted(self.covered[name])) for column, name in columns))


def _values(hold: StoredHold) -> set[str]:
    if hold.object_type != "user":
        return {hold.object_id}
    return {hold.object_id, masked_user(hold.object_id)}


async def active(connection: AsyncConnection, tenant_id: str) -> ActiveHolds:
    """Return the tenant's active holds. In a transaction that erases or purges, read them under the
    tenant's lock, which placing a hold takes too."""
    rows = await connection.execute(_HOLDS.where(*_active(tenant_id)))
    return ActiveHolds([StoredHold(*row) for row in rows])


async def count_active(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(func.count()).select_from(holds).where(*_active(tenant_id))
    return (await connection.execute(query)).scalar_one()


async def first_held(
    connection: AsyncConnection, tenant_id: str, held: ActiveHolds, part: range, size: int
) -> int | None:
    """Return the first entry within `part` that a hold covers, in a log of `size`; None if there is
    none."""
    stop = part.stop
    for name, values in held.covered.items():
        for value in values:
            named = FacetValue(tenant_id, name, value)
            query = first_entry(connection.dialect, named, range(part.start, stop))
            found = (await connection.execute(query)).scalar()
            stop = stop if found is None else int(found)
    # Every facet's index reaches at least this far; the few thousand entries after it are scanned.
    indexed = min(indexed_size(FACETS.index(name), size) for name in held.covered)
    tail = select(func.min(log_entries.c.seq)).select_from(entries_with_openings)
    columns = (log_entries.c.session_id, log_entries.c.agent_id, openings.c.user_id)
    query = tail.where(
        of_tenant(log_entries, tenant_id),
        log_entries.c.seq >= max(part.start, indexed),
        log_entries.c.seq < stop,
        or_(*(column.in_(sorted(held.covered[column.name])) for column in columns)),
    )
    found = (await connection.execute(query)).scalar() if held else None
    stop = stop if found is None else int(found)
    return None if stop == part.stop else stop


async def add(connection: AsyncConnection, tenant_id: str, hold: StoredHold) -> None:
    await connection.execute(insert(holds).values(tenant_id=tenant_id, **values_of(hold)))


async def find(connection: AsyncConnection, tenant_id: str, hold_id: str) -> StoredHold | None:
    query = _HOLDS.where(of_tenant(holds, tenant_id), holds.c.hold_id == hold_id)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else StoredHold(*row)


async def release(
    connection: AsyncConnection, tenant_id: str, hold_id: str, by: str, now: int
) -> None:
    await connection.execute(
        update(holds)
        .where(of_tenant(holds, tenant_id), holds.c.hold_id == hold_id)
        .values(released_by=by, released_at=now)
    )


async def forget_user(connection: AsyncConnection, tenant_id: str, user_id: str) -> None:
    """Empty `object_id` of the released holds on this user, because the user is being erased."""
    await connection.execute(
        update(holds)
        .where(
            of_tenant(holds, tenant_id),
            holds.c.object_type == "user",
            holds.c.object_id == user_id,
            holds.c.released_at.is_not(None),
        )
        .values(object_id="")
    )


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    *,
    is_active: bool | None,
    after: Position | None,
    limit: int,
) -> list[StoredHold]:
    """Return up to `limit` holds after the position `(placed_at, hold_id)`, newest first; only
    active or only released ones if `is_active` is given."""
    query = _HOLDS.where(of_tenant(holds, tenant_id))
    if is_active is not None:
        none = holds.c.released_at.is_(None)
        query = query.where(none if is_active else ~none)
    query = newest_first(query, holds.c.placed_at, holds.c.hold_id, after, limit)
    return [StoredHold(*row) for row in await connection.execute(query)]


def _active(tenant_id: str) -> tuple[ColumnElement[bool], ...]:
    return of_tenant(holds, tenant_id), holds.c.released_at.is_(None)


_HOLDS = select(*columns_of(holds))
