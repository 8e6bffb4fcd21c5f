"""Which revision of the policy set each enforcement point has applied, by its own hash-chained
records: for each revision at which one advanced, the first entry that was decided, or beat, at it.

    newest(connection, tenant_id, source)      the newest revision acknowledged
    add(connection, tenant_id, source, rows)   rows of later revisions
    of_live(connection, tenant_id, ...)        a page of the live sidecars, with their entries

Knows nothing of how a record says its revision.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, ScalarSelect, and_, bindparam, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.sidecar_rows import LIVE
from control_api.store.schema.log import log_entries
from control_api.store.schema.proofs import acknowledgements
from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import sidecars


class Acknowledged(NamedTuple):
    """The first entry of a source at `revision` or later than the one before. `time` is the
    record's own, in microseconds."""

    revision: int
    seq: int
    time: int


class LiveSidecar(NamedTuple):
    """A live sidecar and, if it has acknowledged the wanted revision, the first entry that shows it
    (else `seq` and `at` are None). `newest` is the newest revision that it has acknowledged. `hash`
    is None too once retention has removed the entry. Times are in microseconds."""

    sidecar_id: str
    last_seen: int
    newest: int | None
    seq: int | None
    at: int | None
    hash: bytes | None


def newest_of() -> ScalarSelect[int]:
    """A subquery for the newest revision of `:of_source` in `:tenant`; null if there is none."""
    return (
        select(func.max(acknowledgements.c.revision))
        .where(
            of_tenant(acknowledgements, bindparam("tenant")),
            acknowledgements.c.source == bindparam("of_source"),
        )
        .scalar_subquery()
    )


def newest(connection: Connection, tenant_id: str, source: str) -> int | None:
    """The newest revision that the source has acknowledged; None if it has none."""
    wanted = {"tenant": tenant_id, "of_source": source}
    found: int | None = connection.execute(_NEWEST, wanted).scalar_one()
    return found


def add(connection: Connection, tenant_id: str, source: str, rows: Sequence[Acknowledged]) -> None:
    """Adds rows of revisions after the newest. The caller holds the lock on the log's head."""
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


async def of_live(
    connection: AsyncConnection, tenant_id: str, revision: int, now: int, after: str, limit: int
) -> list[LiveSidecar]:
    """Up to `limit` live sidecars after the id `after`, in order, with the first entry of each at
    `revision` or later."""
    wanted = {"tenant": tenant_id, "revision": revision, "since": now - LIVE}
    rows = await connection.execute(_OF_LIVE, {**wanted, "after": after, "rows": limit})
    return [LiveSidecar(*row) for row in rows]


def forget_before(connection: Connection, tenant_id: str, until: int) -> None:
    """Deletes the rows of entries below `until`, except each source's newest."""
    connection.execute(_FORGET, {"tenant": tenant_id, "until": until})


_NEWEST = select(newest_of())
_other = acknowledgements.alias("other")
_newest = (
    select(func.max(_other.c.revision))
    .where(
        of_tenant(_other, sidecars.c.tenant_id),
        _other.c.source == sidecars.c.sidecar_id,
    )
    .correlate(sidecars)
    .scalar_subquery()
)
_first = (
    select(func.min(_other.c.revision))
    .where(
        of_tenant(_other, sidecars.c.tenant_id),
        _other.c.source == sidecars.c.sidecar_id,
        _other.c.revision >= bindparam("revision"),
    )
    .correlate(sidecars)
    .scalar_subquery()
)
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
        of_tenant(sidecars, bindparam("tenant")),
        sidecars.c.last_seen >= bindparam("since"),
        sidecars.c.sidecar_id > bindparam("after"),
    )
    .order_by(sidecars.c.sidecar_id)
    .limit(bindparam("rows"))
)
_FORGET = delete(acknowledgements).where(
    of_tenant(acknowledgements, bindparam("tenant")),
    acknowledgements.c.seq < bindparam("until"),
    acknowledgements.c.revision
    < select(func.max(_other.c.revision))
    .where(
        of_tenant(_other, acknowledgements.c.tenant_id),
        _other.c.source == acknowledgements.c.source,
    )
    .correlate(acknowledgements)
    .scalar_subquery(),
)
