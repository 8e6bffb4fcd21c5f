"""Queries over when documents of a tenant's policy set changed. Knows nothing of their content."""

from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.tables import documents


async def changed_names(
    connection: AsyncConnection, tenant_id: str, prefix: str, after: int, limit: int
) -> list[str]:
    """The names that begin with `prefix` of documents that changed or were removed after this
    revision, the latest change first."""
    rows = await connection.execute(
        _changes(tenant_id, prefix, documents.c.name)
        .where(documents.c.revision > after)
        .order_by(documents.c.revision.desc())
        .limit(limit)
    )
    return list(rows.scalars())


async def last_change(connection: AsyncConnection, tenant_id: str, prefix: str) -> int:
    """The revision of the last change of a document whose name begins with `prefix`; 0 without
    one."""
    rows = await connection.execute(_changes(tenant_id, prefix, func.max(documents.c.revision)))
    return rows.scalar_one() or 0


def _changes(tenant_id: str, prefix: str, column: Any) -> Select[Any]:
    # Not a range, and not LIKE: see `candidates.document_names`.
    named = func.substr(documents.c.name, 1, len(prefix)) == prefix
    return select(column).where(documents.c.tenant_id == tenant_id, named)
