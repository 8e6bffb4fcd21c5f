"""Reads the next decisions of a log that a target has not got. Knows no target."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, Row, select

from control_api.log.search import events_of
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.store import Store
from policies.trail.entry import audit_event

SPAN = 10_000
"""The most entries that one batch passes over, however few decisions are among them."""
STRETCH = 100
"""Decisions encoded in one go, in a thread: about two milliseconds."""
Encode = Callable[[dict[str, Any], str], bytes]
_log = logging.getLogger("sluice.exports")


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded decisions, in log order, and the entry to continue from once they are acknowledged.
    `lost` is how many entries retention removed before they could be pushed, and `weight` the bytes
    that were read."""

    encoded: list[bytes]
    next_seq: int
    lost: int
    weight: int


async def read_batch(
    store: Store, tenant_id: str, part: range, limit: int, encode: Encode
) -> Batch:
    """At most `limit` decisions of the entries in `part`. Raises `ReadFault`."""
    first, until = part.start, min(part.stop, part.start + SPAN)

    def read(connection: Connection) -> tuple[list[Row[Any]], int]:
        seq = log_entries.c.seq
        query = events_of(tenant_id).where(seq >= first, seq < until).order_by(seq).limit(limit)
        rows = list(connection.execute(query).all())
        # Read last: a purge commits its anchor before it removes the first row.
        return rows, connection.execute(select(first_kept(tenant_id))).scalar_one()

    rows, kept = await store.run_reading(tenant_id, read)
    reached = rows[-1].seq + 1 if len(rows) == limit else until
    shown = [row for row in rows if row.seq >= kept]
    encoded: list[bytes] = []
    for at in range(0, len(shown), STRETCH):
        stretch = shown[at : at + STRETCH]
        encoded += await asyncio.to_thread(_encode, tenant_id, stretch, encode)
    weight = sum(len(row.entry) + len(row.openings or b"") for row in rows)
    return Batch(encoded, max(reached, kept), max(0, kept - first), weight)


def _encode(tenant_id: str, rows: list[Row[Any]], encode: Encode) -> list[bytes]:
    encoded = []
    for row in rows:
        try:
            event = audit_event(orjson.loads(row.entry), row.hash, row.openings)
            encoded.append(encode(event, tenant_id))
        except (ValueError, TypeError, LookupError, AttributeError):
            # It must not hold up those behind it for ever; verification reports the damage.
            _log.error(
                "entry %d of tenant `%s` can't be read, and is not exported", row.seq, tenant_id
            )
    return encoded
