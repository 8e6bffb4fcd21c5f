"""Queries the documents of a tenant's policy set, which `Transaction.publish` writes, and the
revisions at which they changed."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.statements import CHUNK, chunks, of_tenant
from control_api.store.schema.tables import documents, tenants
from policies.ground.errors import NotFound


class StoredDocument(NamedTuple):
    """A document of a policy set as stored. `digest` and `body` are None if it was removed."""

    name: str
    revision: int
    digest: str | None
    body: bytes | None


class DocumentPage(NamedTuple):
    """A page of consecutive changes to a policy set, in order of revision. `revision` is the
    tenant's revision when they were read; `more` is True if the page ends before it. A caller whose
    own revision is below `reset_below` has to reload the policy set."""

    revision: int
    documents: list[StoredDocument]
    more: bool
    reset_below: int = 0


async def since(
    connection: AsyncConnection, tenant_id: str, revision: int, *, limit: int, max_bytes: int
) -> DocumentPage:
    """Return the changes after `revision`: at most `limit` documents, with bodies of at most
    `max_bytes` together unless the first alone has more. Raises `NotFound` if there is no such
    tenant."""
    present, reset_below = await revisions(connection, tenant_id)
    # Read the sizes first, so that only the bodies of this page are read.
    # On PostgreSQL each statement sees newer commits, so stay within the revision that was read.
    sizes = await connection.execute(
        select(documents.c.revision, func.coalesce(func.length(documents.c.body), 0))
        .where(
            of_tenant(documents, tenant_id),
            documents.c.revision > revision,
            documents.c.revision <= present,
        )
        .order_by(documents.c.revision)
        .limit(limit)
    )
    last, room = revision, max_bytes
    for changed, size in sizes:
        if size > room and last != revision:
            break
        last, room = changed, room - size
    if last == revision:
        return DocumentPage(present, [], False, reset_below)
    rows = await connection.execute(
        select(*documents.c["name", "revision", "digest", "body"])
        .where(
            of_tenant(documents, tenant_id),
            documents.c.revision > revision,
            documents.c.revision <= last,
        )
        .order_by(documents.c.revision)
    )
    # A document that changed between the two reads has a later revision now, so it belongs to a
    # later page.
    found = [StoredDocument(*row) for row in rows]
    if not found:
        # All of them did. A page without documents would lead its reader nowhere: read again.
        return await since(connection, tenant_id, revision, limit=limit, max_bytes=max_bytes)
    return DocumentPage(present, found, last < present, reset_below)


async def by_name(
    connection: AsyncConnection, tenant_id: str, names: Sequence[str], *, max_bytes: int
) -> DocumentPage:
    """Return the documents of these names, all at one revision. A missing document looks like a
    removed one. The bodies have at most `max_bytes` together unless the first alone has more; the
    page's `more` is True if names were left out. Raises `NotFound` if there is no such tenant."""
    wanted = {"tenant": tenant_id, "names": sorted(set(names))}
    # Read the sizes first, so that only the bodies that fit are read.
    chosen, room = list[str](), max_bytes
    sizes = {row.name: row.size for row in await connection.execute(_NAMED_SIZES, wanted)}
    for name in wanted["names"]:
        room -= sizes.get(name, 0)
        if room < 0 and chosen:
            break
        chosen.append(name)
    # One statement sees one snapshot, so the revision matches the documents.
    rows = (await connection.execute(_NAMED, {"tenant": tenant_id, "names": chosen})).all()
    if not rows:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    stored = {row.name: StoredDocument(row.name, row.changed, row.digest, row.body) for row in rows}
    found = [stored.get(name, StoredDocument(name, 0, None, None)) for name in chosen]
    return DocumentPage(rows[0].revision, found, len(chosen) < len(wanted["names"]))


async def bodies(
    connection: AsyncConnection, tenant_id: str, names: Sequence[str], *, small: int
) -> AsyncIterator[tuple[str, bytes]]:
    """Yield name and body of the existing documents among these names. Documents of up to `small`
    bytes are read many at a time; of the larger ones, at most one is in memory."""
    for chunk in chunks(names):
        wanted = {"tenant": tenant_id, "names": chunk, "small": small}
        found = {row.name: row.body for row in await connection.execute(_SMALL, wanted)}
        for name in chunk:
            body = found.pop(name, None)
            if body is None:  # large, or removed since
                one = {"tenant": tenant_id, "name": name}
                body = (await connection.execute(_ONE, one)).scalar_one_or_none()
            if body is not None:
                yield name, body


def json_array(bodies: Iterable[bytes]) -> bytes:
    """Return the documents as a JSON array, without decoding them."""
    return b"[" + b",".join(bodies) + b"]"


async def array_of(
    connection: AsyncConnection, tenant_id: str, names: str, *, exactly: bool = False
) -> bytes:
    return json_array(await all_of(connection, tenant_id, names, exactly=exactly))


async def all_of(
    connection: AsyncConnection, tenant_id: str, names: str, *, exactly: bool = False
) -> list[bytes]:
    """Return the bodies of the existing documents whose names begin with `names`, or of the one
    document of exactly that name. They are not decoded. Call it in a snapshot: they are read some
    at a time."""
    named = documents.c.name == names if exactly else documents.c.name.startswith(names)
    found: list[bytes] = []
    last = 0
    while True:
        # By revision, of which each document has its own: the order of names differs by database.
        rows = await connection.execute(
            select(documents.c.revision, documents.c.body)
            .where(
                of_tenant(documents, tenant_id),
                named,
                documents.c.body.is_not(None),
                documents.c.revision > last,
            )
            .order_by(documents.c.revision)
            .limit(CHUNK)
        )
        some = rows.all()
        found += [row.body for row in some]
        if len(some) < CHUNK:
            return found
        last = some[-1].revision


async def names_after(
    connection: AsyncConnection, tenant_id: str, prefix: str, after: str | None, limit: int
) -> list[str]:
    """Return up to `limit` names of existing documents that begin with `prefix`, such as `role/`,
    after the name `after`, in the database's order."""
    # The last letter's successor: whatever the collation does with a `/`, it sorts these before.
    beyond = prefix[:-2] + chr(ord(prefix[-2]) + 1)
    rows = await connection.execute(
        select(documents.c.name)
        .where(
            of_tenant(documents, tenant_id),
            documents.c.name > (after or prefix),
            documents.c.name < beyond,
            func.substr(documents.c.name, 1, len(prefix)) == prefix,
            documents.c.digest.is_not(None),
        )
        .order_by(documents.c.name)
        .limit(limit)
    )
    return list(rows.scalars())


async def current(connection: AsyncConnection, tenant_id: str) -> int:
    """Return the tenant's revision. Raises `NotFound` if there is no such tenant."""
    return (await revisions(connection, tenant_id))[0]


async def revisions(connection: AsyncConnection, tenant_id: str) -> tuple[int, int]:
    """Return the tenant's revision, and the revision below which a sidecar has to reload the policy
    set. Raises `NotFound` if there is no such tenant."""
    row = select(tenants.c.revision, tenants.c.reset_below).where(of_tenant(tenants, tenant_id))
    found = (await connection.execute(row)).one_or_none()
    if found is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return found.revision, found.reset_below


async def load(connection: AsyncConnection, tenant_id: str) -> tuple[int, dict[str, bytes]]:
    """Return the tenant's revision and every existing document by name, for a policy set in memory.
    Raises `NotFound` if there is no such tenant."""
    # One statement, so that the documents are those of the revision.
    rows = await connection.execute(
        select(tenants.c.revision, documents.c.name, documents.c.body)
        .select_from(tenants)
        .outerjoin(documents, of_tenant(documents, tenants.c.tenant_id))
        .where(of_tenant(tenants, tenant_id))
    )
    revision: int | None = None
    found: dict[str, bytes] = {}
    for at, name, body in rows:
        revision = at
        if body is not None:
            found[name] = body
    if revision is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return revision, found


_OF_TENANT = of_tenant(documents)
_ONE = select(documents.c.body).where(_OF_TENANT, documents.c.name == bindparam("name"))
_SMALL = select(documents.c.name, documents.c.body).where(
    _OF_TENANT,
    documents.c.name.in_(bindparam("names", expanding=True)),
    func.length(documents.c.body) <= bindparam("small"),
)
_AMONG = documents.c.name.in_(bindparam("names", expanding=True))
_NAMED_SIZES = select(
    documents.c.name, func.coalesce(func.length(documents.c.body), 0).label("size")
).where(_OF_TENANT, _AMONG)
# An outer join, so that the tenant's revision is found even if no document has such a name.
_NAMED = (
    select(
        tenants.c.revision,
        documents.c.name,
        documents.c.revision.label("changed"),
        documents.c.digest,
        documents.c.body,
    )
    .select_from(tenants)
    .outerjoin(documents, and_(of_tenant(documents, tenants.c.tenant_id), _AMONG))
    .where(of_tenant(tenants))
)


async def changed_names(
    connection: AsyncConnection, tenant_id: str, prefix: str, after: int, limit: int
) -> list[str]:
    """Return the names of documents that begin with `prefix` and changed or were removed after this
    revision, the latest change first."""
    rows = await connection.execute(
        _changes(tenant_id, prefix, documents.c.name)
        .where(documents.c.revision > after)
        .order_by(documents.c.revision.desc())
        .limit(limit)
    )
    return list(rows.scalars())


async def last_change(connection: AsyncConnection, tenant_id: str, prefix: str) -> int:
    """Return the revision of the last change of a document whose name begins with `prefix`; 0 if
    there is none."""
    rows = await connection.execute(_changes(tenant_id, prefix, func.max(documents.c.revision)))
    return rows.scalar_one() or 0


def _changes(tenant_id: str, prefix: str, column: Any) -> Select[Any]:
    # Not a range, and not LIKE: see `candidates.document_names`.
    named = func.substr(documents.c.name, 1, len(prefix)) == prefix
    return select(column).where(of_tenant(documents, tenant_id), named)
