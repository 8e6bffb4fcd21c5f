"""Keeps every document that decisions cite from the moment that it is in force, by the digest
that they cite, in the transaction that publishes or replaces it: those of roles, and the tenant's
levels of sources. Knows nothing of reading or removing them
(`control_api.store.queries.cited_documents`).
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.proofs import cited_documents
from control_api.store.schema.statements import chunks, insert_into, of_tenant
from control_api.store.schema.tables import documents
from policies.sets.policy_set import ROLE, document_digest
from policies.sets.source_levels import SOURCES


async def keep(
    connection: AsyncConnection, tenant_id: str, changed: Mapping[str, bytes | None], now: int
) -> None:
    """Keeps the published documents that decisions cite. Call it before the rows of `documents`
    change: what they hold has been in force until `now`. A body of None removes the document."""
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
    """Keeps the documents of roles that are in force, as after an update from a version that kept
    none. Does nothing for those that are kept already."""
    await _adopt(connection, tenant_id, now, None)


async def _adopt(
    connection: AsyncConnection, tenant_id: str, now: int, names: Sequence[str] | None
) -> None:
    missing = (
        select(
            documents.c.tenant_id,
            documents.c.digest,
            documents.c.name,
            documents.c.body,
            bindparam("now"),
        )
        .outerjoin(
            cited_documents,
            of_tenant(cited_documents, documents.c.tenant_id)
            & (cited_documents.c.digest == documents.c.digest),
        )
        .where(
            of_tenant(documents, bindparam("tenant")),
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
        of_tenant(cited_documents, bindparam("tenant")),
        cited_documents.c.name.in_(bindparam("names", expanding=True)),
        cited_documents.c.replaced_at.is_(None),
    )
    .values(replaced_at=bindparam("now"))
)
