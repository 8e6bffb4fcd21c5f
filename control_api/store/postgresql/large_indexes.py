"""Indexes of large tables on PostgreSQL, which `sluice migrate` builds after the migrations, while
the service runs. A transaction can't build them without stopping every append meanwhile.

Building can be repeated: an index that is there stays, and one that a crash left unfinished is
built again.
"""

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

INDEXES = {
    "ix_log_entries_rare_kinds": "log_entries (tenant_id, kind, seq)"
    " WHERE kind NOT IN ('decision', 'lineage')",
}


_LOCK = 0x51D1CF  # the key of an advisory lock: of two replicas, one builds
_RETRY_SECONDS = 0.2


async def build(connection: AsyncConnection) -> None:
    """Builds what is missing. The connection must be in autocommit mode."""
    # Polled: one that waits inside a statement holds a snapshot, for whose end the building of an
    # index waits in turn.
    while not (await connection.execute(_TAKE, {"lock": _LOCK})).scalar():  # noqa: ASYNC110  # another process has it
        await asyncio.sleep(_RETRY_SECONDS)
    try:
        await _build(connection)
    finally:
        await connection.execute(_RELEASE, {"lock": _LOCK})


async def _build(connection: AsyncConnection) -> None:
    for name, definition in INDEXES.items():
        finished = (await connection.execute(_FINISHED, {"name": name})).scalar()
        # A role that owns nothing may run `sluice migrate` too, if there is nothing to do.
        if finished:
            continue
        if finished is False:
            await connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
        await connection.execute(
            text(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {definition}")
        )


_TAKE = text("SELECT pg_try_advisory_lock(:lock)")
_RELEASE = text("SELECT pg_advisory_unlock(:lock)")
_FINISHED = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
