"""Queries API keys, and the keys of enrolled pods. Only the SHA-256 of each key is stored."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from sqlalchemy import RowMapping, and_, delete, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.statements import (
    Position,
    chunks,
    columns_of,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import api_keys, documents, enrolled_keys
from policies.definitions.model import Key, Scope
from policies.ground.canonical import encode


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key as stored. Times are in microseconds; `expires_at` is None if the key never
    expires."""

    key_id: str
    name: str
    scope: Scope
    digest: bytes
    bound_agent_id: str | None
    permitted_roles: tuple[str, ...]
    expires_at: int | None
    created_at: int
    agent_ids: tuple[str, ...] | None = None
    sidecar_ids: tuple[str, ...] | None = None

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredKey":
        return cls(**{**row, **{name: _tuple(row[name]) for name in _LISTS}})

    def shown_patterns(self, names: tuple[str, ...] | None) -> list[str] | None:
        """Return `agent_ids` or `sidecar_ids` as people see them. A sidecar's key that is older
        than these bindings speaks for all agents, and as every sidecar (`*`)."""
        if self.scope == "sidecar" and self.agent_ids is None:
            return ["*"]
        return None if names is None else list(names)

    def published(self) -> Key:
        return Key(
            self.key_id,
            self.scope,
            self.bound_agent_id,
            self.permitted_roles,
            self.expires_at,
            self.agent_ids,
            self.sidecar_ids,
        )


_LISTS = ("permitted_roles", "agent_ids", "sidecar_ids")


def _tuple(stored: bytes | None) -> tuple[str, ...] | None:
    return None if stored is None else tuple(orjson.loads(stored))


def _stored(names: tuple[str, ...] | None) -> bytes | None:
    return None if names is None else encode(list(names))


_NOT_READ = ("tenant_id", "revoked_at", "former_agents")
_COLUMNS = [column for column in api_keys.c if column.name not in _NOT_READ]


async def tenant_of(connection: AsyncConnection, digest: bytes) -> str | None:
    """Return the tenant that owns the key with this SHA-256, revoked or not. This is the only query
    that runs before the tenant is known."""
    for table in (api_keys, enrolled_keys):
        query = select(table.c.tenant_id).where(table.c.digest == digest)
        owner: str | None = (await connection.execute(query)).scalar_one_or_none()
        if owner is not None:
            return owner
    return None


async def add(connection: AsyncConnection, tenant_id: str, key: StoredKey) -> None:
    values = {**values_of(key), **{name: _stored(getattr(key, name)) for name in _LISTS}}
    await connection.execute(insert(api_keys).values(tenant_id=tenant_id, **values))


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    after: Position | None,
    limit: int,
    expires_before: int | None = None,
) -> list[StoredKey]:
    """Return up to `limit` keys that are not revoked, newest first, after the position
    `(created_at, key_id)`; only those that expire before `expires_before`, if it is given."""
    query = select(*_COLUMNS).where(of_tenant(api_keys, tenant_id), api_keys.c.revoked_at.is_(None))
    if expires_before is not None:
        query = query.where(api_keys.c.expires_at < expires_before)
    query = newest_first(query, api_keys.c.created_at, api_keys.c.key_id, after, limit)
    return [StoredKey.from_row(row) for row in (await connection.execute(query)).mappings()]


async def get(connection: AsyncConnection, tenant_id: str, key_id: str) -> StoredKey | None:
    """Return the key, or None if it is missing or revoked."""
    query = select(*_COLUMNS).where(
        of_tenant(api_keys, tenant_id), api_keys.c.key_id == key_id, api_keys.c.revoked_at.is_(None)
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else StoredKey.from_row(row)


MAX_NAMED = 3
"""The most agents of a key that one log line names."""


class NamedKey(NamedTuple):
    """A key as log lines name it, without its digest. `agents` is the agent that it is bound to, or
    those that a sidecar's key speaks for; empty if there are none."""

    key_id: str
    name: str
    scope: Scope
    agents: tuple[str, ...]

    @classmethod
    def from_row(cls, row: RowMapping) -> "NamedKey":
        # A sidecar's key from before keys had agents speaks for all.
        spoken = _tuple(row["agent_ids"]) or (("*",) if row["scope"] == "sidecar" else ())
        bound = row["bound_agent_id"]
        return cls(row["key_id"], row["name"], row["scope"], spoken if bound is None else (bound,))

    def __str__(self) -> str:
        # Callers chose the names: no line breaks or terminal codes in the log.
        shown = ", ".join(f"{each!a}" for each in self.agents[:MAX_NAMED])
        more = f" and {len(self.agents) - MAX_NAMED} more" if len(self.agents) > MAX_NAMED else ""
        agents = f", agent{'s' * (len(self.agents) > 1)} {shown}{more}" if self.agents else ""
        return f"`{self.key_id}` ({self.name!a}, scope {self.scope}{agents})"


_NAMED = [api_keys.c[name] for name in ("key_id", "name", "scope", "bound_agent_id", "agent_ids")]


async def expiring(
    connection: AsyncConnection, tenant_id: str, now: int, limit: int
) -> list[tuple[NamedKey, int]]:
    """Return up to `limit` valid keys that expire next, soonest first, each with the time of its
    expiry (microseconds)."""
    query = select(*_NAMED, api_keys.c.expires_at).where(
        of_tenant(api_keys, tenant_id),
        api_keys.c.revoked_at.is_(None),
        api_keys.c.expires_at > now,
    )
    query = query.order_by(api_keys.c.expires_at, api_keys.c.key_id).limit(limit)
    rows = (await connection.execute(query)).mappings()
    return [(NamedKey.from_row(row), row["expires_at"]) for row in rows]


async def revoked(connection: AsyncConnection, tenant_id: str, digest: bytes) -> NamedKey | None:
    """Return the revoked key with this SHA-256; None if there is none."""
    query = select(*_NAMED).where(
        of_tenant(api_keys, tenant_id),
        api_keys.c.digest == digest,
        api_keys.c.revoked_at.is_not(None),
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else NamedKey.from_row(row)


async def names(
    connection: AsyncConnection, tenant_id: str, key_ids: Collection[str]
) -> dict[str, str]:
    """Return the names of the keys among these ids, revoked or not, by id."""
    query = select(api_keys.c.key_id, api_keys.c.name).where(
        of_tenant(api_keys, tenant_id), api_keys.c.key_id.in_(key_ids)
    )
    return {row.key_id: row.name for row in await connection.execute(query)}


async def known(connection: AsyncConnection, tenant_id: str, key_id: str) -> bool:
    """Return whether a key of this id exists, revoked or not."""
    query = select(api_keys.c.key_id).where(
        of_tenant(api_keys, tenant_id), api_keys.c.key_id == key_id
    )
    return (await connection.execute(query)).first() is not None


async def bind(connection: AsyncConnection, tenant_id: str, key: StoredKey) -> None:
    """Store the key's bindings: its agent, its permitted roles, and for which agents and as which
    sidecars it speaks."""
    await connection.execute(
        update(api_keys)
        .where(of_tenant(api_keys, tenant_id), api_keys.c.key_id == key.key_id)
        .values(
            bound_agent_id=key.bound_agent_id,
            **{name: _stored(getattr(key, name)) for name in _LISTS},
        )
    )


async def add_former_agent(connection: AsyncConnection, tenant_id: str, key: StoredKey) -> None:
    """Record the key's present agent, or that it has none, as a former binding. Sidecars that were
    given the key with this binding have to forget it."""
    row = of_tenant(api_keys, tenant_id), api_keys.c.key_id == key.key_id
    stored = (await connection.execute(select(api_keys.c.former_agents).where(*row))).scalar_one()
    former: list[str | None] = [] if stored is None else orjson.loads(stored)
    if key.bound_agent_id not in former:
        former.append(key.bound_agent_id)
        await connection.execute(update(api_keys).where(*row).values(former_agents=encode(former)))


async def revoke(connection: AsyncConnection, tenant_id: str, key_id: str, now: int) -> None:
    await connection.execute(
        update(api_keys)
        .where(of_tenant(api_keys, tenant_id), api_keys.c.key_id == key_id)
        .values(revoked_at=now)
    )


EXPIRED_AT_ONCE = 1000
"""The most expired keys that one transaction deletes. On SQLite, evaluations wait for that
transaction."""


@dataclass(frozen=True, slots=True)
class EnrolledKey:
    """The key of an enrolled pod, as stored. Times are in microseconds."""

    key_id: str
    digest: bytes
    scope: Scope
    agent_id: str
    generation: str
    pod: str
    pod_uid: str
    created_at: int
    expires_at: int

    def key(self) -> Key:
        """Return the key with its permissions. Both keys of a pod speak for the pod's agent
        alone."""
        if self.scope == "sidecar":
            return Key(self.key_id, self.scope, None, (), self.expires_at, (self.agent_id,))
        return Key(self.key_id, self.scope, self.agent_id, (), self.expires_at)


_ENROLLED_COLUMNS = columns_of(enrolled_keys)


async def find_enrolled(
    connection: AsyncConnection, tenant_id: str, digest: bytes
) -> EnrolledKey | None:
    query = select(*_ENROLLED_COLUMNS).where(
        of_tenant(enrolled_keys, tenant_id), enrolled_keys.c.digest == digest
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else EnrolledKey(**row)


async def add_enrolled(
    connection: AsyncConnection, tenant_id: str, keys: Sequence[EnrolledKey]
) -> None:
    rows = [{"tenant_id": tenant_id, **values_of(key)} for key in keys]
    for part in chunks(rows):
        await connection.execute(insert(enrolled_keys), part)


async def page_of_enrolled(
    connection: AsyncConnection,
    tenant_id: str,
    now: int,
    after: Position | None,
    limit: int,
    expires_before: int | None = None,
) -> list[EnrolledKey]:
    """Return up to `limit` keys that have not expired at `now`, newest first, after the position
    `(created_at, key_id)`; only those that expire before `expires_before`, if it is given."""
    query = select(*_ENROLLED_COLUMNS).where(
        of_tenant(enrolled_keys, tenant_id), enrolled_keys.c.expires_at > now
    )
    if expires_before is not None:
        query = query.where(enrolled_keys.c.expires_at < expires_before)
    created_at, key_id = enrolled_keys.c.created_at, enrolled_keys.c.key_id
    query = newest_first(query, created_at, key_id, after, limit)
    return [EnrolledKey(**row) for row in (await connection.execute(query)).mappings()]


async def enrolled_of_live_agents(
    connection: AsyncConnection, tenant_id: str, now: int
) -> list[tuple[str, str]]:
    """Return `(key_id, agent_id)` for each agent with a valid enrolled key: one that has not
    expired at `now`, and has the generation that the agent's document names."""
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


async def delete_expired_enrolled(connection: AsyncConnection, tenant_id: str, before: int) -> int:
    """Delete keys that expired before this time. Returns how many, at most `EXPIRED_AT_ONCE`."""
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
