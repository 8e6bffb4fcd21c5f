"""Checks the counters of the spools against the entries. A counter that is ahead of the log would
have records receipted that the log does not have: their sidecar would forget them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, Select, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import sources
from policies.ground.canonical import b64
from policies.trail.findings import Finding, Reason
from policies.trail.walk.range_result import ChainEnd, Source


async def counters(connection: AsyncConnection, tenant_id: str) -> Sequence[Row[Any]]:
    """The last record that each spool's counter says is in the log. Read them before the head: a
    counter moves with its entries."""
    rows: Sequence[Row[Any]] = (await connection.execute(_COUNTERS, {"tenant": tenant_id})).all()
    return rows


def find_ahead(
    rows: Sequence[Row[Any]], ends: Mapping[Source, ChainEnd], size: int, *, purged: bool
) -> Finding | None:
    """A counter that is ahead of its spool's last record among `size` entries, or that names
    another record there. `purged` says that earlier records may have been removed."""
    for row in rows:
        end = ends.get((str(row.source).encode(), str(row.instance).encode()))
        if end is None and purged:
            continue
        n, hashed = (-1, b"") if end is None else end
        if not _fits(row, n, hashed):
            ahead = (
                f"the counter of spool `{row.source:.80}` `{row.instance:.80}` holds a record "
                f"{row.n}, and its last one in the log is {n}"
            )
            return Finding(size, Reason.SOURCE_GAP, ahead)
    return None


def _fits(row: Row[Any], n: int, hashed: bytes) -> bool:
    try:
        # Behind is no fault: what was appended since these were read has moved them on.
        return bool(row.n < n or (row.n == n and b64(row.hash).encode() == hashed))
    except TypeError:  # SQLite does not enforce column types
        return False


_OF_TENANT = sources.c.tenant_id == bindparam("tenant")
_COUNTERS: Select[Any] = select(
    sources.c.source, sources.c.instance, sources.c.n, sources.c.hash
).where(_OF_TENANT)
