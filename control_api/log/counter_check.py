"""Checks the counters of the spools against the entries. A counter that is ahead of the log would
have records receipted that the log does not have: their sidecar would forget them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, Select, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import sources
from policies.ground.canonical import b64
from policies.trail.core import record_hash
from policies.trail.findings import Finding, Reason
from policies.trail.walk.range_result import ChainEnd, Source


class SpoolEnds:
    """The last record of each spool among the entries that it sees, in any order."""

    def __init__(self) -> None:
        self.ends: dict[Source, ChainEnd] = {}

    def see(self, entry: dict[str, Any]) -> None:
        """Take in a decoded entry. Raises `ValueError`, `TypeError` or `LookupError` if its place
        in a spool can't be read."""
        src = entry.get("src")
        if src is None:
            return
        source = src["id"].encode(), src["inst"].encode()
        known = self.ends.get(source)
        # Hashed only if it is the newest so far: from the newest on, once for each spool.
        if known is None or src["n"] > known[0]:
            self.ends[source] = src["n"], b64(record_hash(entry)).encode()


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
