"""Lists the records of sidecars that were refused, newest first. They are found by the index of
rare kinds; everything shown comes from the entry's bytes."""

from typing import Any, NamedTuple

import orjson
from sqlalchemy import select, text

from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.store import Store

MAX_BYTES = 2 * 1024 * 1024
"""The bytes of entries after which a page ends."""
_ROWS = 50


class RejectedPage(NamedTuple):
    """A page of entries with their leaf hashes. `next` is the `seq` to continue before, None on the
    last page."""

    entries: list[tuple[dict[str, Any], bytes]]
    next: int | None


async def rejected_records(
    store: Store, tenant_id: str, limit: int, before_seq: int | None = None
) -> RejectedPage:
    """The entries before `before_seq`."""
    query = select(log_entries.c.seq, log_entries.c.entry, log_entries.c.hash).where(
        log_entries.c.tenant_id == tenant_id,
        # In the words of the index's condition: otherwise no database uses it.
        text("kind = 'rejected_record' AND kind NOT IN ('decision', 'lineage')"),
        log_entries.c.seq >= first_kept(tenant_id),
    )
    query = query.order_by(log_entries.c.seq.desc()).limit(_ROWS)
    page: list[tuple[dict[str, Any], bytes]] = []
    room, position = MAX_BYTES, before_seq
    async with store.reading(tenant_id) as connection:
        while True:
            part = query if position is None else query.where(log_entries.c.seq < position)
            rows = (await connection.execute(part)).all()
            for row in rows:
                if len(page) == limit or room < 0:
                    return RejectedPage(page, position)
                page.append((orjson.loads(row.entry), row.hash))
                room, position = room - len(row.entry), row.seq
            if len(rows) < _ROWS:
                return RejectedPage(page, None)
