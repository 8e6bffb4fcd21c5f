"""Queries over the keys of enrolled pods, of which only the SHA-256 is stored. Does not know what
ends a key before it expires."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import RowMapping, and_, delete, func, insert, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.rows import Position, columns_of, newest_first, values_of
from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import documents, enrolled_keys
from policies.definitions.model import Key, Scope

EXPIRED_AT_ONCE = 1000
"""The most expired keys that one transaction deletes: on SQLite, evaluations wait for it."""


@dataclass(frozen=True, slots=True)
class EnrolledKey:
    """An enrolled key's row. Times are in microseconds."""

    key_id: str
    digest: bytes
    scope: Scope
    agent_id: str
    generation: str
    pod: str
    pod_uid: str
    created_at: int
    expires_at: int

    @classmethod
    def from_row(cls, row: RowMapping) -> "EnrolledKey":
        return cls(**row)

    def key(self) -> Key:
        """What the key may do. Both keys of a pod speak for its agent alone."""
        if self.scope == "sidecar":
            return Key(self.key_id, self.scope, None, (), self.expires_at, (self.agent_id,))
        return Key(self.key_id, self.scope, self.agent_id, (), self.expires_at)


_COLUMNS = columns_of(enrolled_keys)


async def tenant_of(connection: AsyncConnection, digest: bytes) -> str | None:
    """The tenant that owns the key with this SHA-256; called before the tenant is known."""
    query = select(enrolled_keys.c.tenant_id).where(enrolled_keys.c.digest == digest)
    owner: str | None = (await connection.execute(query)).scalar_one_or_none()
    return owner


async def find(connection: AsyncConnection, tenant_id: str, digest: bytes) -> EnrolledKey | None:
    query = select(*_COLUMNS).where(
        of_tenant(enrolled_keys, tenant_id), enrolled_keys.c.digest == digest
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else EnrolledKey.from_row(row)


async def add(connection: AsyncConnection, tenant_id: str, keys: Sequence[EnrolledKey]) -> None:
    rows = [{"tenant_id": tenant_id, **values_of(key)} for key in keys]
    for part in chunks(rows):
        await connection.execute(insert(enrolled_keys), part)


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    now: int,
    after: Position | None,
    limit: int,
    expires_before: int | None = None,
) -> list[EnrolledKey]:
    """The keys that have not expired at `now`, newest first, after `(created_at, key_id)`; of all,
    or of those that expire before a time."""
    query = select(*_COLUMNS).where(
        of_tenant(enrolled_keys, tenant_id), enrolled_keys.c.expires_at > now
    )
    if expires_before is not None:
        query = query.where(enrolled_keys.c.expires_at < expires_before)
    created_at, key_id = enrolled_keys.c.created_at, enrolled_keys.c.key_id
    query = newest_first(query, created_at, key_id, after, limit)
    return [EnrolledKey.from_row(row) for row in (await connection.execute(query)).mappings()]


async def of_live_agents(
    connection: AsyncConnection, tenant_id: str, now: int
) -> list[tuple[str, str]]:
    """`(key_id, agent_id)` for each agent with a key of its own that is live: not expired at `now`,
    and of the generation that the agent's document names."""
    its_document = and_(
        of_tenant(documents, enrolled_keys.c.tenant_id),
        documents.c.name == literal("enrolment/").concat(enrolled_keys.c.agent_id),
    )
    query = (
        select(
            enrolled_keys.c.agent_id,
            enrolled_keys.c.generation,
            func.min(enrolled_keys.c.key_id).label("key_id"),
            documents.c.body,
        )
        .join(documents, its_document)
        .where(
            of_tenant(enrolled_keys, tenant_id),
            enrolled_keys.c.scope == "evaluate",
            enrolled_keys.c.expires_at > now,
            documents.c.body.is_not(None),
        )
        .group_by(enrolled_keys.c.agent_id, enrolled_keys.c.generation, documents.c.body)
    )
    rows = await connection.execute(query)
    return [
        (row.key_id, row.agent_id)
        for row in rows
        if orjson.loads(row.body)["generation"] == row.generation
    ]


async def delete_expired(connection: AsyncConnection, tenant_id: str, before: int) -> int:
    """Deletes keys that expired before this time. Returns how many, at most `EXPIRED_AT_ONCE`."""
    expired = select(enrolled_keys.c.key_id).where(
        of_tenant(enrolled_keys, tenant_id), enrolled_keys.c.expires_at < before
    )
    done = await connection.execute(
        delete(enrolled_keys).where(
            of_tenant(enrolled_keys, tenant_id),
            enrolled_keys.c.key_id.in_(expired.limit(EXPIRED_AT_ONCE)),
        )
    )
    return int(done.rowcount)
