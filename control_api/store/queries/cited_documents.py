"""Queries over the documents of roles that decisions cite, which `Transaction.publish` keeps. Knows
nothing of their content, nor of when one may go (`control_api.log.cited_documents`)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.proofs import cited_documents
from control_api.store.schema.statements import chunks, of_tenant


class ReplacedDocument(NamedTuple):
    """A document that is no longer in force, and since when (microseconds)."""

    digest: str
    replaced_at: int


async def by_digests(
    connection: AsyncConnection, tenant_id: str, digests: Iterable[str]
) -> dict[str, bytes]:
    """The bodies of the documents with these digests, by digest; a digest without a document is
    left out. A body may have 1 MiB: ask for few at a time."""
    found: dict[str, bytes] = {}
    for part in chunks(sorted(set(digests))):
        rows = await connection.execute(_BODIES, {"tenant": tenant_id, "digests": part})
        found |= {row.digest: row.body for row in rows}
    return found


async def replaced_before(
    connection: AsyncConnection, tenant_id: str, time: int, limit: int
) -> list[ReplacedDocument]:
    """Up to `limit` documents that were replaced or removed before `time`, the oldest first."""
    wanted = {"tenant": tenant_id, "time": time, "rows": limit}
    return [ReplacedDocument(*row) for row in await connection.execute(_REPLACED, wanted)]


async def forget(
    connection: AsyncConnection, tenant_id: str, digests: Sequence[str], time: int
) -> int:
    """Deletes those of these documents that were replaced before `time`, and are not in force
    again. Returns how many there were."""
    removed = 0
    for part in chunks(digests):
        wanted = {"tenant": tenant_id, "digests": part, "time": time}
        gone = await connection.execute(_FORGET, wanted)
        removed += gone.rowcount
    return removed


_OF_TENANT = of_tenant(cited_documents, bindparam("tenant"))
_NAMED = cited_documents.c.digest.in_(bindparam("digests", expanding=True))
_BODIES = select(cited_documents.c.digest, cited_documents.c.body).where(_OF_TENANT, _NAMED)
_REPLACED = (
    select(cited_documents.c.digest, cited_documents.c.replaced_at)
    .where(_OF_TENANT, cited_documents.c.replaced_at < bindparam("time"))
    .order_by(cited_documents.c.replaced_at, cited_documents.c.digest)
    .limit(bindparam("rows"))
)
_FORGET = delete(cited_documents).where(
    _OF_TENANT, _NAMED, cited_documents.c.replaced_at < bindparam("time")
)
