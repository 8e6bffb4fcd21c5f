"""Queries over one-time sign-in links, of whose codes only the SHA-256 is stored."""

from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.rows import columns_of, values_of
from control_api.store.schema.features import sign_in_links
from control_api.store.schema.statements import of_tenant


@dataclass(frozen=True, slots=True)
class SignInLink:
    """A link's row (`store.schema.console`). Times are in microseconds; `used_at` is None until the
    link is used."""

    digest: bytes
    person: str
    scope: str
    key_digest: bytes
    expires_at: int
    used_at: int | None = None


async def add(connection: AsyncConnection, tenant_id: str, link: SignInLink) -> None:
    row = {"tenant_id": tenant_id, **values_of(link)}
    await connection.execute(insert(sign_in_links).values(row))


async def find(connection: AsyncConnection, tenant_id: str, digest: bytes) -> SignInLink | None:
    """The link whose code has this SHA-256, used or not, expired or not."""
    query = select(*columns_of(sign_in_links)).where(
        of_tenant(sign_in_links, tenant_id), sign_in_links.c.digest == digest
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else SignInLink(*row)


async def use(connection: AsyncConnection, tenant_id: str, digest: bytes, now: int) -> bool:
    """Marks the link as used. False if it is unknown, expired or used: of two callers at the same
    time, one gets True."""
    used = (
        update(sign_in_links)
        .where(
            of_tenant(sign_in_links, tenant_id),
            sign_in_links.c.digest == digest,
            sign_in_links.c.expires_at > now,
            sign_in_links.c.used_at.is_(None),
        )
        .values(used_at=now)
    )
    return bool((await connection.execute(used)).rowcount)


async def delete_expired(connection: AsyncConnection, tenant_id: str, before: int) -> None:
    """Deletes links that expired before this time."""
    await connection.execute(
        delete(sign_in_links).where(
            of_tenant(sign_in_links, tenant_id), sign_in_links.c.expires_at < before
        )
    )
