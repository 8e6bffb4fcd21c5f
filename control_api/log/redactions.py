"""Looks up the `redact` entries behind a walk: an opening that is missing may have been erased
while the log was read, or after the part of the log that was. Erases nothing.
"""

import orjson
from sqlalchemy import select

from control_api.store.queries import redactions
from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.trail.findings import Finding
from policies.trail.walk.gaps import Erasures, erased_ranges

PAGE = 100


async def excuse(store: Store, tenant_id: str, erasures: Erasures, size: int) -> None:
    """Apply the `redact` entries from seq `size` on. They are not verified here: the walk that
    reaches them does that."""
    after = size - 1
    while erasures.count():
        async with store.reading(tenant_id) as connection:
            rows = await redactions.page(
                connection, tenant_id, before=None, after=after, limit=PAGE
            )
        for row in rows:
            after = row.seq
            for first, last in _ranges(row.entry):
                erasures.redact(first, last)
        if len(rows) < PAGE:
            return


async def missing(store: Store, tenant_id: str, erasures: Erasures) -> Finding | None:
    """The first entry whose opening is missing without an excuse, with its id."""
    for found in erasures.findings(1):
        query = select(log_entries.c.eid).where(
            of_tenant(log_entries, tenant_id), log_entries.c.seq == found.seq
        )
        async with store.reading(tenant_id) as connection:
            return found._replace(eid=(await connection.execute(query)).scalar_one_or_none())
    return None


def _ranges(raw: bytes) -> list[tuple[int, int]]:
    try:
        return erased_ranges(orjson.loads(raw))
    except (ValueError, TypeError, LookupError, AttributeError):
        return []  # not an entry at all: it excuses nothing
