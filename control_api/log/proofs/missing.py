"""Tells an event that was never recorded from one whose row was deleted: a log numbers its entries
without a gap.

Looks only where the event would be, by the time that its id contains; `sluice verify` reads the
whole log. Knows rows and their order.
"""

import uuid

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.log.index import SPAN, indexed_size
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries, log_heads, log_spans
from policies.ground.errors import SluiceError

_SPANS = 8
_SKEW = 1_000_000  # microseconds between the time of an event and that of its id
_UUID7 = 7


class MissingEntry(SluiceError):
    """was deleted from the log, whose entries are numbered: run `sluice verify --database`"""


async def refuse_gap(connection: AsyncConnection, tenant_id: str, event_id: str) -> None:
    """Raises `MissingEntry` if the log lacks an entry of about the time at which the id of this
    event was drawn. Does nothing for an id that holds no time."""
    drawn = _drawn_at(event_id)
    if drawn is None:
        return
    head = select(log_heads.c.size, first_kept(tenant_id)).where(log_heads.c.tenant_id == tenant_id)
    size, kept = (await connection.execute(head)).one_or_none() or (0, 0)
    # The newest entries have no span yet. They are some thousand at most, as those of a span are.
    spans = [(indexed_size(SPAN, size), size)]
    held = select(log_spans.c.seq, log_spans.c.until_seq).where(
        log_spans.c.tenant_id == tenant_id,
        log_spans.c.first_ts <= drawn + _SKEW,
        log_spans.c.last_ts >= drawn - _SKEW,
    )
    newest = held.order_by(log_spans.c.seq.desc()).limit(_SPANS)
    spans += [(row.seq, row.until_seq) for row in await connection.execute(newest)]
    for first, until in spans:
        gap = await _gap(connection, tenant_id, max(first, kept), until)
        # A purge may have removed rows since `kept` was read.
        if gap is not None and gap >= (await connection.execute(head)).one()[1]:
            raise MissingEntry(f"event `{event_id}` is not found, and entry {gap} {_WHAT}")


async def _gap(connection: AsyncConnection, tenant_id: str, first: int, until: int) -> int | None:
    """The first number from `first` up to `until` (exclusive) that no entry has."""
    seq = log_entries.c.seq
    query = select(seq).where(log_entries.c.tenant_id == tenant_id, seq >= first, seq < until)
    found = {row.seq for row in await connection.execute(query)}
    return next((each for each in range(first, until) if each not in found), None)


def _drawn_at(event_id: str) -> int | None:
    """The time in a UUIDv7, in microseconds."""
    try:
        read = uuid.UUID(event_id)
    except ValueError:
        return None
    return (read.int >> 80) * 1000 if read.version == _UUID7 else None


_WHAT = " ".join((MissingEntry.__doc__ or "").split())
