"""Queries over guardrails. Does not know what breaks one."""

from dataclasses import dataclass

import orjson
from sqlalchemy import RowMapping, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.features import guardrails
from control_api.store.schema.statements import Position, columns_of, newest_first, of_tenant
from policies.definitions.guardrail import Guardrail
from policies.ground.canonical import encode


@dataclass(frozen=True, slots=True)
class StoredGuardrail:
    """A guardrail's row. `file` names the file that defines it, relative to the policy directory;
    None if the API made it. Times are in microseconds."""

    guardrail: Guardrail
    file: str | None
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredGuardrail":
        guardrail = Guardrail.from_wire(orjson.loads(row["body"]))
        return cls(guardrail, row["file"], row["created_at"], row["updated_at"])


_COLUMNS = columns_of(guardrails)


async def get(connection: AsyncConnection, tenant_id: str, name: str) -> StoredGuardrail | None:
    query = select(*_COLUMNS).where(of_tenant(guardrails, tenant_id), guardrails.c.name == name)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else StoredGuardrail.from_row(row)


async def page(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredGuardrail]:
    """A page of guardrails, newest first, after `(created_at, name)`."""
    query = select(*_COLUMNS).where(of_tenant(guardrails, tenant_id))
    query = newest_first(query, guardrails.c.created_at, guardrails.c.name, after, limit)
    return [StoredGuardrail.from_row(row) for row in (await connection.execute(query)).mappings()]


async def every(connection: AsyncConnection, tenant_id: str) -> list[StoredGuardrail]:
    """All guardrails of the tenant, by name."""
    query = select(*_COLUMNS).where(of_tenant(guardrails, tenant_id))
    found = (await connection.execute(query.order_by(guardrails.c.name))).mappings()
    return [StoredGuardrail.from_row(row) for row in found]


async def count(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(func.count()).where(of_tenant(guardrails, tenant_id))
    return (await connection.execute(query)).scalar_one()


async def add(connection: AsyncConnection, tenant_id: str, row: StoredGuardrail) -> None:
    values = {"name": row.guardrail.name, "created_at": row.created_at, **_changing(row)}
    await connection.execute(insert(guardrails).values(tenant_id=tenant_id, **values))


async def put(connection: AsyncConnection, tenant_id: str, row: StoredGuardrail) -> None:
    """Replaces the row of the same name."""
    await connection.execute(
        update(guardrails)
        .where(of_tenant(guardrails, tenant_id), guardrails.c.name == row.guardrail.name)
        .values(**_changing(row))
    )


async def remove(connection: AsyncConnection, tenant_id: str, name: str) -> None:
    await connection.execute(
        delete(guardrails).where(of_tenant(guardrails, tenant_id), guardrails.c.name == name)
    )


def _changing(row: StoredGuardrail) -> dict[str, object]:
    body = encode(row.guardrail.to_wire())
    return {"body": body, "file": row.file, "updated_at": row.updated_at}
