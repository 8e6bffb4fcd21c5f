"""Queries the published checkpoints of a tenant's log, and its incarnations.

INVARIANT: a row is added only after the checkpoint store has the note.

Nothing is verified here. In a checkpoint's row, only the signed `note` is evidence, and the other
columns repeat it; an incarnation is verified by a proof of its entry.
"""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import checkpoints, incarnations, log_entries
from control_api.store.schema.statements import columns_of, insert_if_absent, of_tenant, values_of
from policies.trail.checkpoint import is_origin_of

HOUR = 3_600_000_000
KEPT = 24 * HOUR
"""The time in microseconds for which every checkpoint is kept. After that, only the last of each
hour is kept."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A published checkpoint: the tree of `origin` at `size`, and the signed note about it.
    `number` counts the tenant's checkpoints, and `add` assigns it. `signed_at` is in
    microseconds."""

    origin: str
    size: int
    root_hash: bytes
    frontier: bytes
    note: str
    signed_at: int
    witnesses: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class StoredIncarnation:
    """An incarnation of a log, which an operator accepted after the log diverged from its
    checkpoints. From the entry `seq` on, the log's checkpoints have the origin `origin`.
    `cited_note` is the last note of the origin before."""

    number: int
    origin: str
    seq: int
    cited_note: str
    accepted_at: int


async def add(
    connection: AsyncConnection, tenant_id: str, made: StoredCheckpoint
) -> StoredCheckpoint:
    """Add a checkpoint behind the others, and return it. If another process has added one of this
    origin and size, or a larger one, return that instead: the latest checkpoint never gets smaller.
    Lock the tenant first."""
    last = await latest(connection, tenant_id)
    if last is not None and last.origin == made.origin and last.size > made.size:
        return last
    row = replace(made, number=0 if last is None else last.number + 1)
    statement = insert_if_absent(checkpoints, connection.dialect)
    done = await connection.execute(statement, {"tenant_id": tenant_id, **values_of(row)})
    if done.rowcount != 1:
        stored = await at(connection, tenant_id, made.size)
        assert stored is not None
        return stored
    if last is not None and last.signed_at // HOUR != row.signed_at // HOUR:
        wanted = {"tenant": tenant_id, "before": row.signed_at - KEPT}
        await connection.execute(_THIN, wanted)
    return row


async def cosigned(
    connection: AsyncConnection, tenant_id: str, number: int, note: str, witnesses: int
) -> None:
    """Replace a checkpoint's note by the same note with more cosignatures. `witnesses` is the
    number of cosignatures by configured keys. Lock the tenant first, since two may arrive at
    once."""
    wanted = {"tenant": tenant_id, "at": number, "cosigned": note, "count": witnesses}
    await connection.execute(_COSIGNED, wanted)


async def latest(connection: AsyncConnection, tenant_id: str) -> StoredCheckpoint | None:
    return await connection.run_sync(read_latest, tenant_id)


def read_latest(connection: Connection, tenant_id: str) -> StoredCheckpoint | None:
    """Return the latest checkpoint like `latest`, without awaiting anything."""
    row = connection.execute(_LATEST, {"tenant": tenant_id}).one_or_none()
    return None if row is None else _checkpoint(row)


async def readable_latest(connection: AsyncConnection, tenant_id: str) -> StoredCheckpoint | None:
    """Return the checkpoint that was published last; None also if its row was edited so that it is
    no valid checkpoint."""
    try:
        return await latest(connection, tenant_id)
    except (ValueError, TypeError):
        return None


async def at(connection: AsyncConnection, tenant_id: str, size: int) -> StoredCheckpoint | None:
    """Return the checkpoint of `size` entries that was published last; None if there is none."""
    return await connection.run_sync(read_at, tenant_id, size)


def read_at(connection: Connection, tenant_id: str, size: int) -> StoredCheckpoint | None:
    """Return a checkpoint like `at`, without awaiting anything."""
    row = connection.execute(_AT, {"tenant": tenant_id, "size": size}).one_or_none()
    return None if row is None else _checkpoint(row)


async def upto(
    connection: AsyncConnection, tenant_id: str, origin: str, size: int
) -> StoredCheckpoint | None:
    """Return the largest checkpoint of this origin with at most `size` entries; None if there is
    none."""
    wanted = {"tenant": tenant_id, "origin": origin, "size": size}
    row = (await connection.execute(_UPTO, wanted)).one_or_none()
    return None if row is None else _checkpoint(row)


async def page(
    connection: AsyncConnection, tenant_id: str, before: int | None, limit: int
) -> list[StoredCheckpoint]:
    """Return up to `limit` checkpoints with a number below `before` (None: all), newest first."""
    query = select(*COLUMNS).where(of_tenant(checkpoints, tenant_id))
    if before is not None:
        query = query.where(checkpoints.c.number < before)
    rows = await connection.execute(query.order_by(checkpoints.c.number.desc()).limit(limit))
    return [_checkpoint(row) for row in rows]


async def latest_incarnation(
    connection: AsyncConnection, tenant_id: str
) -> StoredIncarnation | None:
    """Return the log's current incarnation; None for its first, which has no row."""
    row = (await connection.execute(_INCARNATION, {"tenant": tenant_id})).one_or_none()
    return None if row is None else StoredIncarnation(*row)


async def current_origin(connection: AsyncConnection, tenant_id: str, log: str) -> str:
    """Return the origin of the log's checkpoints: the log's name, unless an incarnation has its own
    origin."""
    row = await latest_incarnation(connection, tenant_id)
    return row.origin if row is not None and is_origin_of(row.origin, log) else log


async def add_incarnation(
    connection: AsyncConnection, tenant_id: str, made: StoredIncarnation
) -> None:
    values = {"tenant_id": tenant_id, **values_of(made)}
    await connection.execute(insert(incarnations).values(values))


COLUMNS = [checkpoints.c[name] for name in StoredCheckpoint.__dataclass_fields__]
_LATEST = (
    select(*COLUMNS).where(of_tenant(checkpoints)).order_by(checkpoints.c.number.desc()).limit(1)
)
_AT = (
    select(*COLUMNS)
    .where(of_tenant(checkpoints), checkpoints.c.size == bindparam("size"))
    # Of an expression: ordered by `number` itself, both databases would walk back through a day's
    # checkpoints in that order instead of looking the size up in its index.
    .order_by((checkpoints.c.number + 0).desc())
    .limit(1)
)
_COSIGNED = (
    update(checkpoints)
    .where(of_tenant(checkpoints), checkpoints.c.number == bindparam("at"))
    .values(note=bindparam("cosigned"), witnesses=bindparam("count"))
)
_UPTO = (
    select(*COLUMNS)
    .where(
        of_tenant(checkpoints),
        checkpoints.c.size <= bindparam("size"),
        checkpoints.c.origin == bindparam("origin"),
    )
    .order_by(checkpoints.c.size.desc())
    .limit(1)
)
_LAST_OF_HOURS = (
    select(func.max(checkpoints.c.number))
    .where(of_tenant(checkpoints))
    .group_by(checkpoints.c.origin, checkpoints.c.signed_at // HOUR)
)
_THIN = delete(checkpoints).where(
    of_tenant(checkpoints),
    checkpoints.c.signed_at < bindparam("before"),
    checkpoints.c.number.not_in(_LAST_OF_HOURS),
)
_INCARNATION = (
    select(*columns_of(incarnations))
    .where(of_tenant(incarnations))
    .order_by(incarnations.c.number.desc())
    .limit(1)
)


def beside(rows: FromClause, tenant: ColumnElement[str]) -> FromClause:
    """Return the given rows joined with the columns `COLUMNS` of their tenant's latest
    checkpoint."""
    every = checkpoints.alias()
    newest = select(func.max(every.c.number)).where(of_tenant(every, tenant)).scalar_subquery()
    latest = of_tenant(checkpoints, tenant) & (checkpoints.c.number == newest)
    return rows.outerjoin(checkpoints, latest)


def from_row(row: Row[Any]) -> StoredCheckpoint | None:
    """Return the checkpoint of a row with `COLUMNS`; None if the log has none. Raises `ValueError`
    or `TypeError` if the row was edited so that it is no valid checkpoint."""
    return None if row.number is None else _checkpoint(row)


def _checkpoint(row: Row[Any]) -> StoredCheckpoint:
    """Return the row's checkpoint. SQLite does not enforce column types, so `bytes` and `int`
    refuse a value of another type that somebody put there."""
    return StoredCheckpoint(
        str(row.origin),
        int(row.size),
        bytes(memoryview(row.root_hash)),
        bytes(memoryview(row.frontier)),
        str(row.note),
        int(row.signed_at),
        int(row.witnesses),
        int(row.number),
    )


async def current(
    connection: AsyncConnection, tenant_id: str
) -> tuple[StoredIncarnation, str] | None:
    """Return the log's current incarnation and the id of its entry; None for a log's first
    incarnation, and after the entry was purged."""
    row = (await connection.execute(_WITH_ENTRY, {"tenant": tenant_id})).one_or_none()
    return None if row is None else (StoredIncarnation(*row[:-1]), row.eid)


_WITH_ENTRY = (
    select(*columns_of(incarnations), log_entries.c.eid)
    .join(
        log_entries,
        of_tenant(log_entries, incarnations.c.tenant_id)
        & (log_entries.c.seq == incarnations.c.seq),
    )
    .where(of_tenant(incarnations), log_entries.c.kind == "incarnation")
    .order_by(incarnations.c.number.desc())
    .limit(1)
)
