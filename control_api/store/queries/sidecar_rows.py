"""The last report of each sidecar. Concurrent reports share a transaction. Knows nothing of how
reports arrive or are used.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, and_, case, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.dimensions import DAY
from control_api.store.group_commit import GroupCommit
from control_api.store.queries.rows import Position, newest_first, values_of
from control_api.store.schema.statements import insert_into, of_tenant
from control_api.store.schema.tables import sidecars
from control_api.store.store import Store
from policies.ground.errors import SluiceError

LIVE = 15_000_000
"""How long a sidecar counts as live after its last report, in microseconds: two reports may be
lost."""
KEPT = 7 * DAY
"""How long a silent sidecar stays listed, in microseconds."""


@dataclass(frozen=True, slots=True)
class StoredSidecar:
    """A sidecar's row. Times are in microseconds since 1970 UTC, ages in milliseconds as of
    `last_seen`."""

    sidecar_id: str
    run_id: str
    version: str
    agent_id: str | None
    agent_role: str | None
    epoch: str
    revision: int
    policy_set_age_ms: int | None
    spool_depth: int
    oldest_unshipped_ms: int | None
    refusing: str | None
    first_seen: int
    last_seen: int
    duplicate_at: int | None = None
    workload: str | None = None
    enrolled_until: str | None = None
    forked: str | None = None
    source_levels: bool | None = None

    def live(self, now: int) -> bool:
        return now - self.last_seen <= LIVE

    def duplicate(self, now: int) -> bool:
        """Whether two processes currently report under this sidecar's id."""
        return self.duplicate_at is not None and now - self.duplicate_at <= LIVE


_FIELDS = tuple(field.name for field in fields(StoredSidecar))
_REPORTED = tuple(name for name in _FIELDS if name not in ("sidecar_id", "first_seen"))


class FleetReports:
    """Stores reports, many in one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._group_commit: GroupCommit[tuple[str, StoredSidecar], None] = GroupCommit(
            store.group, self._commit
        )

    async def report(self, tenant_id: str, row: StoredSidecar) -> None:
        """Stores a report. Raises `WriteFault` if the database fails."""
        await self._group_commit.submit(self._store.lane(tenant_id), (tenant_id, row))

    async def forget(self, tenant_id: str) -> None:
        """Deletes the sidecars that have been silent for longer than `KEPT`."""
        before = self._store.clock.now() - KEPT
        query = delete(sidecars).where(
            of_tenant(sidecars, tenant_id), sidecars.c.last_seen < before
        )
        await self._store.run(
            self._store.lane(tenant_id), lambda connection, _: connection.execute(query)
        )

    async def _commit(
        self, lane: str, reports: list[tuple[str, StoredSidecar]]
    ) -> list[SluiceError | None]:
        await self._store.run(lane, lambda connection, _: _save(connection, reports))
        return [None] * len(reports)


def _save(connection: Connection, reports: Iterable[tuple[str, StoredSidecar]]) -> None:
    # Always write in one order, so that two replicas with reports of the same sidecars can't
    # deadlock.
    for tenant_id, row in sorted(reports, key=lambda each: (each[0], each[1].sidecar_id)):
        values = {"tenant_id": tenant_id, **values_of(row)}
        connection.execute(_upsert(connection.dialect), values)


async def page(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredSidecar]:
    """A page of sidecars, newest first, after `(first_seen, sidecar_id)`."""
    query = select(*(sidecars.c[name] for name in _FIELDS)).where(of_tenant(sidecars, tenant_id))
    query = newest_first(query, sidecars.c.first_seen, sidecars.c.sidecar_id, after, limit)
    return [StoredSidecar(*row) for row in await connection.execute(query)]


async def behind(
    connection: AsyncConnection, tenant_id: str, epoch: str, revision: int, now: int
) -> list[StoredSidecar]:
    """The live sidecars that do not have this revision yet, in order of id."""
    query = (
        select(*(sidecars.c[name] for name in _FIELDS))
        .where(of_tenant(sidecars, tenant_id), sidecars.c.last_seen >= now - LIVE)
        .where((sidecars.c.epoch != epoch) | (sidecars.c.revision < revision))
        .order_by(sidecars.c.sidecar_id)
    )
    return [StoredSidecar(*row) for row in await connection.execute(query)]


@lru_cache(maxsize=4)
def _upsert(dialect: Dialect) -> Any:
    insert = insert_into(sidecars, dialect)
    new = insert.excluded
    another = new.run_id != sidecars.c.run_id
    # After a restart only the new run reports. If the former run reports again, it never stopped,
    # and two processes share the id.
    again = and_(another, new.run_id == sidecars.c.former_run_id)
    changed = {name: getattr(new, name) for name in _REPORTED if name != "duplicate_at"}
    changed["former_run_id"] = case((another, sidecars.c.run_id), else_=sidecars.c.former_run_id)
    changed["duplicate_at"] = case((again, new.last_seen), else_=sidecars.c.duplicate_at)
    return insert.on_conflict_do_update(index_elements=["tenant_id", "sidecar_id"], set_=changed)
