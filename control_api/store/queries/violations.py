"""Counts the entries that say that a sidecar's key named a foreign agent or sidecar."""

import orjson
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import of_tenant

VIOLATION = "key.isolation_violation"
"""What such a `change` entry says."""
MAX_READ = 1000
"""The most changes that are read to count them, newest first."""


async def counted(connection: AsyncConnection, tenant_id: str, since: int, until: int) -> int:
    """How many were refused from `since` to `until` (microseconds), among the newest changes."""
    query = (
        select(log_entries.c.ts, log_entries.c.entry)
        .where(
            of_tenant(log_entries, tenant_id),
            log_entries.c.kind == "change",
            log_entries.c.kind.not_in(("decision", "lineage")),  # as the index has it
        )
        .order_by(log_entries.c.seq.desc())
        .limit(MAX_READ)
    )
    total = 0
    for ts, entry in await connection.execute(query):
        if not since <= ts <= until:
            continue
        pub = orjson.loads(entry)["pub"]
        if pub.get("what") == VIOLATION:
            total += 1 + pub["detail"]["suppressed"]
    return total
