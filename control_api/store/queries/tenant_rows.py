"""Queries over tenants and the installation. Knows nothing of keys or policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.postgresql.transaction import all_tenants
from control_api.store.schema.statements import (
    Position,
    columns_of,
    insert_if_absent,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import documents, installation, tenants
from policies.ground.errors import NotFound


@dataclass(frozen=True, slots=True)
class StoredTenant:
    """A tenant as stored. `revision` grows by one with each document that the tenant publishes; a
    sidecar below `reset_below` must reload its policy set. `candidates` is the text of the table's
    column (`control_api.store.queries.policy_rows`). Times in microseconds."""

    tenant_id: str
    name: str
    created_at: int
    require_agent_id: bool
    pii_masking: bool
    active: bool
    revision: int = 0
    retention_days: int = 365
    session_retention_days: int = 90
    reset_below: int = 0
    frozen_at: int | None = None
    freeze_reason: str | None = None
    candidates: str | None = None


@dataclass(frozen=True, slots=True)
class Installation:
    """The identity of this database, created together with it. `created_at` is in microseconds."""

    epoch: str
    created_at: int
    superadmin_digest: bytes | None


async def get(connection: AsyncConnection, tenant_id: str) -> StoredTenant | None:
    found = await connection.execute(select(tenants).where(of_tenant(tenants, tenant_id)))
    row = found.mappings().one_or_none()
    return None if row is None else StoredTenant(**row)


async def ids(connection: AsyncConnection) -> list[str]:
    """Return every tenant's id, in order."""
    found = await connection.execute(select(tenants.c.tenant_id).order_by(tenants.c.tenant_id))
    return list(found.scalars())


async def chosen(connection: AsyncConnection, tenant_id: str | None) -> list[str]:
    """Return the ids of the tenants that a command is for: only `tenant_id`, or all if that is
    None. Raises `NotFound` for an unknown tenant."""
    every = await ids(connection)
    if tenant_id is None:
        return every
    if tenant_id not in every:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return [tenant_id]


class KnownTenant(NamedTuple):
    tenant_id: str
    name: str
    active: bool


async def known(connection: AsyncConnection) -> list[KnownTenant]:
    """Return every tenant, deactivated ones included, in order of id."""
    query = select(tenants.c.tenant_id, tenants.c.name, tenants.c.active)
    found = await connection.execute(query.order_by(tenants.c.tenant_id))
    return [KnownTenant(*row) for row in found]


async def states(connection: AsyncConnection, among: Sequence[str]) -> dict[str, tuple[int, bool]]:
    """Return the revision of each of these tenants, and whether the tenant is active."""
    query = select(tenants.c.tenant_id, tenants.c.revision, tenants.c.active)
    found = await connection.execute(query.where(tenants.c.tenant_id.in_(among)))
    return {tenant_id: (revision, active) for tenant_id, revision, active in found}


async def bodies(
    connection: AsyncConnection, tenant_id: str, names: Sequence[str]
) -> dict[str, bytes | None]:
    """Return the bodies of the documents of these names; None for a removed document. A name that
    was never published is absent."""
    query = select(documents.c.name, documents.c.body).where(
        of_tenant(documents, tenant_id), documents.c.name.in_(names)
    )
    return {row.name: row.body for row in await connection.execute(query)}


async def add(connection: AsyncConnection, tenant: StoredTenant) -> None:
    await connection.execute(insert(tenants).values(values_of(tenant)))


async def page(
    connection: AsyncConnection, after: Position | None, limit: int
) -> list[StoredTenant]:
    """Return up to `limit` tenants after the position `(created_at, tenant_id)`, newest first."""
    created_at, tenant_id = tenants.c.created_at, tenants.c.tenant_id
    query = newest_first(select(tenants), created_at, tenant_id, after, limit)
    return [StoredTenant(**row) for row in (await connection.execute(query)).mappings()]


async def find_by_name(connection: AsyncConnection, tenant_id: str, name: str) -> str | None:
    """Return the id of the tenant that has this name, or None. Call it in the transaction that
    gives the name to `tenant_id`."""
    # A unique index over the names of all tenants is impossible, because every unique key leads
    # with the tenant. So of two transactions that want a name, one waits here for the other's end.
    lock = select(installation.c.epoch).where(of_tenant(installation, "")).with_for_update()
    await connection.execute(lock)
    # Outside this block, row-level security hides the rows of other tenants.
    async with all_tenants(connection, tenant_id):
        found = await connection.execute(select(tenants.c.tenant_id).where(tenants.c.name == name))
    holder: str | None = found.scalar()
    return holder


async def put(connection: AsyncConnection, tenant: StoredTenant) -> None:
    """Replace the tenant's row, except for the revision, which only a publication changes."""
    # This transaction may have published since `tenant` was read, so its revision may be old.
    kept = ("tenant_id", "revision")
    values = {name: value for name, value in values_of(tenant).items() if name not in kept}
    await connection.execute(
        update(tenants).where(of_tenant(tenants, tenant.tenant_id)).values(**values)
    )


async def installed(connection: AsyncConnection) -> Installation | None:
    """Return the identity of this database, or None if the database is new."""
    query = select(*columns_of(installation)).where(of_tenant(installation, ""))
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Installation(*row)


async def install(connection: AsyncConnection, made: Installation) -> bool:
    """Store the identity of a new database. Returns False if another process has just stored one,
    which is then the valid one."""
    statement = insert_if_absent(installation, connection.dialect)
    done = await connection.execute(statement, {"tenant_id": "", **values_of(made)})
    return bool(done.rowcount == 1)
