"""Keeps every document that decisions may cite, by the digest that they cite, from the moment that
it comes into force: the documents of roles, and the tenant's levels of sources. Also reads and
removes them.

A document is kept in the transaction that publishes or replaces it. `control_api.log.purge` decides
when one may be removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import cited_documents
from control_api.store.schema.statements import chunks, insert_into, of_tenant
from control_api.store.schema.tables import documents
from policies.sets.policy_set import ROLE, document_digest
from policies.sets.source_levels import SOURCES


async def keep(
    connection: AsyncConnection, tenant_id: str, changed: Mapping[str, bytes | None], now: int
) -> None:
    """Keep the published documents that decisions cite. Call it before the rows of `documents`
    change: the documents in those rows have been in force until `now`. A body of None removes the
    document."""
    cited = [name for name in changed if name.startswith(ROLE) or name == SOURCES]
    if not cited:
        return
    for names in chunks(cited):
        # A replica of the version before this one may have published them, and kept nothing.
        await _adopt(connection, tenant_id, now, names)
        await connection.execute(_REPLACE, {"tenant": tenant_id, "names": names, "now": now})
    rows = [
        {
            "tenant_id": tenant_id,
            "digest": document_digest(body),
            "name": name,
            "body": body,
            "published_at": now,
            "replaced_at": None,
        }
        for name in cited
        if (body := changed[name]) is not None
    ]
    # A document may come back: a restored policy has the bytes, and so the digest, that it had.
    insert = insert_into(cited_documents, connection.dialect).on_conflict_do_update(
        index_elements=["tenant_id", "digest"], set_={"replaced_at": None}
    )
    for part in chunks(rows):
        await connection.execute(insert, part)


async def adopt(connection: AsyncConnection, tenant_id: str, now: int) -> None:
    """Keep the documents of roles that are in force, after an update from a version that kept none.
    Does nothing for those that are kept already."""
    await _adopt(connection, tenant_id, now, None)


async def _adopt(
    connection: AsyncConnection, tenant_id: str, now: int, names: Sequence[str] | None
) -> None:
    missing = (
        select(*documents.c["tenant_id", "digest", "name", "body"], bindparam("now"))
        .outerjoin(
            cited_documents,
            of_tenant(cited_documents, documents.c.tenant_id)
            & (cited_documents.c.digest == documents.c.digest),
        )
        .where(
            of_tenant(documents),
            documents.c.digest.is_not(None),
            func.substr(documents.c.name, 1, len(ROLE)) == ROLE,
            cited_documents.c.digest.is_(None),
        )
    )
    if names is not None:
        missing = missing.where(documents.c.name.in_(names))
    insert = insert_into(cited_documents, connection.dialect).from_select(_ADOPTED, missing)
    await connection.execute(insert, {"tenant": tenant_id, "now": now})


_ADOPTED = ["tenant_id", "digest", "name", "body", "published_at"]
_REPLACE = (
    update(cited_documents)
    .where(
        of_tenant(cited_documents),
        cited_documents.c.name.in_(bindparam("names", expanding=True)),
        cited_documents.c.replaced_at.is_(None),
    )
    .values(replaced_at=bindparam("now"))
)


class ReplacedDocument(NamedTuple):
    """A document that is no longer in force, and the time since when (microseconds)."""

    digest: str
    replaced_at: int


async def by_digests(
    connection: AsyncConnection, tenant_id: str, digests: Iterable[str]
) -> dict[str, bytes]:
    """Return the bodies of the documents with these digests, by digest; a digest without a document
    is left out. A body may have 1 MiB, so ask for few at a time."""
    found: dict[str, bytes] = {}
    for part in chunks(sorted(set(digests))):
        rows = await connection.execute(_BODIES, {"tenant": tenant_id, "digests": part})
        found |= {row.digest: row.body for row in rows}
    return found


async def replaced_before(
    connection: AsyncConnection, tenant_id: str, time: int, limit: int
) -> list[ReplacedDocument]:
    """Return up to `limit` documents that were replaced or removed before `time`, the oldest
    first."""
    wanted = {"tenant": tenant_id, "time": time, "rows": limit}
    return [ReplacedDocument(*row) for row in await connection.execute(_REPLACED, wanted)]


async def forget_cited(
    connection: AsyncConnection, tenant_id: str, digests: Sequence[str], time: int
) -> int:
    """Delete those of these documents that were replaced before `time` and are not in force again.
    Returns the number of deleted documents."""
    removed = 0
    for part in chunks(digests):
        wanted = {"tenant": tenant_id, "digests": part, "time": time}
        gone = await connection.execute(_FORGET, wanted)
        removed += gone.rowcount
    return removed


_OF_TENANT = of_tenant(cited_documents)
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
