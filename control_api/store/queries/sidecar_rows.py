"""Queries the state of each sidecar: its last report, the revision of the policy set that it has
applied, and the log entries that say that its key named a foreign agent or sidecar.

Concurrent reports share a transaction. The applied revision follows from the sidecar's own
hash-chained records: for each revision at which a sidecar advanced, the table has the first entry
(a decision or a heartbeat) with that revision.

    newest_acknowledged(connection, tenant_id, source)        the newest revision acknowledged
    add_acknowledgements(connection, tenant_id, source, rows) rows of later revisions
    acknowledged_of_live(connection, tenant_id, ...)          a page of live sidecars, with entries
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    Connection,
    Dialect,
    ScalarSelect,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.counters.counters import DAY
from control_api.store.group_commit import GroupCommit
from control_api.store.schema.log import acknowledgements, log_entries
from control_api.store.schema.statements import (
    Position,
    insert_into,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import sidecars
from control_api.store.store import Store
from policies.ground.errors import SluiceError

LIVE = 15_000_000
"""The time (microseconds) for which a sidecar counts as live after its last report. It allows for
two lost reports."""
KEPT = 7 * DAY
"""The time (microseconds) for which a silent sidecar stays listed."""


@dataclass(frozen=True, slots=True)
class StoredSidecar:
    """A sidecar as stored, with its last report. Times are in microseconds since 1970 UTC, ages in
    milliseconds as of `last_seen`."""

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
        """Return whether two processes currently report under this sidecar's id."""
        return self.duplicate_at is not None and now - self.duplicate_at <= LIVE


_FIELDS = tuple(field.name for field in fields(StoredSidecar))
_REPORTED = tuple(name for name in _FIELDS if name not in ("sidecar_id", "first_seen"))


class FleetReports:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._group_commit: GroupCommit[tuple[str, StoredSidecar], None] = GroupCommit(
            store.group, self._commit
        )

    async def report(self, tenant_id: str, row: StoredSidecar) -> None:
        """Store a report. Raises `WriteFault` if the database fails."""
        await self._group_commit.submit(self._store.lane(tenant_id), (tenant_id, row))

    async def forget(self, tenant_id: str) -> None:
        """Delete the sidecars that have been silent for longer than `KEPT`."""
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
    """Return a page of sidecars, newest first, after the position `(first_seen, sidecar_id)`."""
    query = select(*(sidecars.c[name] for name in _FIELDS)).where(of_tenant(sidecars, tenant_id))
    query = newest_first(query, sidecars.c.first_seen, sidecars.c.sidecar_id, after, limit)
    return [StoredSidecar(*row) for row in await connection.execute(query)]


async def behind(
    connection: AsyncConnection, tenant_id: str, epoch: str, revision: int, now: int
) -> list[StoredSidecar]:
    """Return the live sidecars that do not have this revision of the policy set yet, in order of
    id."""
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


class Acknowledged(NamedTuple):
    """An acknowledgement: the first entry of a source that shows `revision`, which is later than
    that of the acknowledgement before. `time` is the record's own, in microseconds."""

    revision: int
    seq: int
    time: int


class LiveSidecar(NamedTuple):
    """A live sidecar with its acknowledgement of the wanted revision: the number of the first entry
    that shows it, that entry's time and hash. `seq` and `at` are None if it has not acknowledged
    the revision; `hash` is None too once retention has removed the entry. `newest` is the newest
    revision that it has acknowledged. Times are in microseconds."""

    sidecar_id: str
    last_seen: int
    newest: int | None
    seq: int | None
    at: int | None
    hash: bytes | None


def newest_acknowledged_of() -> ScalarSelect[int]:
    """Return a subquery for the newest revision that `:of_source` in `:tenant` has acknowledged;
    null if there is none."""
    return (
        select(func.max(acknowledgements.c.revision))
        .where(of_tenant(acknowledgements), acknowledgements.c.source == bindparam("of_source"))
        .scalar_subquery()
    )


def newest_acknowledged(connection: Connection, tenant_id: str, source: str) -> int | None:
    """Return the newest revision that the source has acknowledged; None if there is none."""
    wanted = {"tenant": tenant_id, "of_source": source}
    found: int | None = connection.execute(_NEWEST, wanted).scalar_one()
    return found


def add_acknowledgements(
    connection: Connection, tenant_id: str, source: str, rows: Sequence[Acknowledged]
) -> None:
    """Add acknowledgements of revisions after the newest. The caller must hold the lock on the
    log's head."""
    values = [
        {
            "tenant_id": tenant_id,
            "source": source,
            "revision": row.revision,
            "seq": row.seq,
            "acknowledged_at": row.time,
        }
        for row in rows
    ]
    connection.execute(insert(acknowledgements), values)


async def acknowledged_of_live(
    connection: AsyncConnection, tenant_id: str, revision: int, now: int, after: str, limit: int
) -> list[LiveSidecar]:
    """Return up to `limit` live sidecars after the id `after`, in order, each with its first entry
    at `revision` or later."""
    wanted = {"tenant": tenant_id, "revision": revision, "since": now - LIVE}
    rows = await connection.execute(_OF_LIVE, {**wanted, "after": after, "rows": limit})
    return [LiveSidecar(*row) for row in rows]


def forget_acknowledgements(connection: Connection, tenant_id: str, until: int) -> None:
    """Delete the acknowledgements by entries below `until`, except each source's newest."""
    connection.execute(_FORGET, {"tenant": tenant_id, "until": until})


_NEWEST = select(newest_acknowledged_of())
_other = acknowledgements.alias("other")


def _one_revision(which: Any, outer: Table, source: str, *more: Any) -> ScalarSelect[int]:
    mine = of_tenant(_other, outer.c.tenant_id), _other.c.source == outer.c[source]
    return select(which(_other.c.revision)).where(*mine, *more).correlate(outer).scalar_subquery()


_newest = _one_revision(func.max, sidecars, "sidecar_id")
_since = _other.c.revision >= bindparam("revision")
_first = _one_revision(func.min, sidecars, "sidecar_id", _since)
_OF_LIVE = (
    select(
        sidecars.c.sidecar_id,
        sidecars.c.last_seen,
        _newest.label("newest"),
        acknowledgements.c.seq,
        acknowledgements.c.acknowledged_at.label("at"),
        log_entries.c.hash,
    )
    .select_from(sidecars)
    .outerjoin(
        acknowledgements,
        and_(
            of_tenant(acknowledgements, sidecars.c.tenant_id),
            acknowledgements.c.source == sidecars.c.sidecar_id,
            acknowledgements.c.revision == _first,
        ),
    )
    .outerjoin(
        log_entries,
        and_(
            of_tenant(log_entries, acknowledgements.c.tenant_id),
            log_entries.c.seq == acknowledgements.c.seq,
        ),
    )
    .where(
        of_tenant(sidecars),
        sidecars.c.last_seen >= bindparam("since"),
        sidecars.c.sidecar_id > bindparam("after"),
    )
    .order_by(sidecars.c.sidecar_id)
    .limit(bindparam("rows"))
)
_FORGET = delete(acknowledgements).where(
    of_tenant(acknowledgements),
    acknowledgements.c.seq < bindparam("until"),
    acknowledgements.c.revision < _one_revision(func.max, acknowledgements, "source"),
)


VIOLATION = "key.isolation_violation"
"""The name of the `change` entry that is logged if a key named an agent or sidecar that it is not
bound to."""
MAX_VIOLATIONS_READ = 1000
"""The most `change` entries that are read to count violations, newest first."""


async def count_violations(
    connection: AsyncConnection, tenant_id: str, since: int, until: int
) -> int:
    """Return the number of isolation violations from `since` to `until` (microseconds), among the
    newest `MAX_VIOLATIONS_READ` changes. It includes those that were suppressed instead of getting
    an entry of their own."""
    query = (
        select(log_entries.c.ts, log_entries.c.entry)
        .where(
            of_tenant(log_entries, tenant_id),
            log_entries.c.kind == "change",
            log_entries.c.kind.not_in(("decision", "lineage")),  # as the index has it
        )
        .order_by(log_entries.c.seq.desc())
        .limit(MAX_VIOLATIONS_READ)
    )
    total = 0
    for ts, entry in await connection.execute(query):
        if not since <= ts <= until:
            continue
        pub = orjson.loads(entry)["pub"]
        if pub.get("what") == VIOLATION:
            total += 1 + pub["detail"]["suppressed"]
    return total
