"""Queries the console's sessions, and the one-time links that begin a session. Of session secrets
and link codes, only the SHA-256 is stored."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.features import console_sessions, sign_in_links
from control_api.store.schema.statements import (
    Position,
    columns_of,
    newest_first,
    of_tenant,
    values_of,
)

SignInMethod = Literal["key", "link", "oidc"]
ConsoleScope = Literal["read", "admin", "superadmin"]
"""The scopes whose keys may sign in to the console. Keys of agents and sidecars are for
programs."""
EXPIRED_AT_ONCE = 1000
"""The most ended sessions that one transaction deletes: on SQLite, evaluations wait for it."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """A console session's row (`store.schema.features`). Times are in microseconds since 1970
    UTC."""

    digest: bytes
    session_id: str
    method: SignInMethod
    person: str
    scope: ConsoleScope
    key_digest: bytes | None
    issuer: str | None
    subject: str | None
    granted_by: str | None
    created_at: int
    seen_at: int
    expires_at: int
    browser: str


_COLUMNS = columns_of(console_sessions)


async def add_session(connection: AsyncConnection, tenant_id: str, session: ConsoleSession) -> None:
    row = {"tenant_id": tenant_id, **values_of(session)}
    await connection.execute(insert(console_sessions).values(row))


def find_session(connection: Connection, tenant_id: str, digest: bytes) -> ConsoleSession | None:
    """Return the session whose secret has this SHA-256, whether or not it has expired."""
    query = select(*_COLUMNS).where(
        of_tenant(console_sessions, tenant_id), console_sessions.c.digest == digest
    )
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else ConsoleSession(**row)


async def page_of_sessions(
    connection: AsyncConnection,
    tenant_id: str,
    live: tuple[int, int],
    after: Position | None,
    limit: int,
) -> list[ConsoleSession]:
    """Return the sessions that have not ended, newest first, after the position `(created_at,
    session_id)`. `live` is `(now, idle)`: a session has not ended if it expires after `now` and was
    last seen after `idle`."""
    now, idle = live
    query = select(*_COLUMNS).where(
        of_tenant(console_sessions, tenant_id),
        console_sessions.c.expires_at > now,
        console_sessions.c.seen_at > idle,
    )
    created_at, session_id = console_sessions.c.created_at, console_sessions.c.session_id
    query = newest_first(query, created_at, session_id, after, limit)
    return [ConsoleSession(**row) for row in (await connection.execute(query)).mappings()]


async def touch_session(
    connection: AsyncConnection, tenant_id: str, digest: bytes, now: int, before: int
) -> None:
    """Record that the session was used now, unless it was used at or after `before`."""
    await connection.execute(
        update(console_sessions)
        .where(
            of_tenant(console_sessions, tenant_id),
            console_sessions.c.digest == digest,
            console_sessions.c.seen_at < before,
        )
        .values(seen_at=now)
    )


async def mark_session_ended(
    connection: AsyncConnection, tenant_id: str, session_id: str, person: str | None
) -> ConsoleSession | None:
    """Delete the session and return it. If `person` is given, do so only for a session of that
    person. Return None if there is no such session: of two concurrent callers, one gets it."""
    mine = [of_tenant(console_sessions, tenant_id), console_sessions.c.session_id == session_id]
    if person is not None:
        mine.append(console_sessions.c.person == person)
    row = (await connection.execute(select(*_COLUMNS).where(*mine))).mappings().one_or_none()
    done = await connection.execute(delete(console_sessions).where(*mine))
    return ConsoleSession(**row) if row is not None and done.rowcount else None


async def delete_ended_sessions(
    connection: AsyncConnection, tenant_id: str, now: int, idle: int
) -> int:
    """Delete sessions that have expired, or were not seen after `idle`, at most `EXPIRED_AT_ONCE`.
    Return the number of deleted sessions."""
    ended = select(console_sessions.c.digest).where(
        of_tenant(console_sessions, tenant_id),
        or_(console_sessions.c.expires_at <= now, console_sessions.c.seen_at <= idle),
    )
    done = await connection.execute(
        delete(console_sessions).where(
            of_tenant(console_sessions, tenant_id),
            console_sessions.c.digest.in_(ended.limit(EXPIRED_AT_ONCE)),
        )
    )
    return int(done.rowcount)


@dataclass(frozen=True, slots=True)
class SignInLink:
    """A sign-in link's row (`store.schema.features`). Times are in microseconds; `used_at` is None
    until the link is used."""

    digest: bytes
    person: str
    scope: str
    key_digest: bytes
    expires_at: int
    used_at: int | None = None


async def add_link(connection: AsyncConnection, tenant_id: str, link: SignInLink) -> None:
    row = {"tenant_id": tenant_id, **values_of(link)}
    await connection.execute(insert(sign_in_links).values(row))


async def find_link(
    connection: AsyncConnection, tenant_id: str, digest: bytes
) -> SignInLink | None:
    """Return the link whose code has this SHA-256, used or not, expired or not."""
    query = select(*columns_of(sign_in_links)).where(
        of_tenant(sign_in_links, tenant_id), sign_in_links.c.digest == digest
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else SignInLink(*row)


async def use_link(connection: AsyncConnection, tenant_id: str, digest: bytes, now: int) -> bool:
    """Mark the link as used. Return False if it is unknown, expired or used already: of two
    concurrent callers, one gets True."""
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


async def delete_expired_links(connection: AsyncConnection, tenant_id: str, before: int) -> None:
    """Delete links that expired before the time `before`."""
    await connection.execute(
        delete(sign_in_links).where(
            of_tenant(sign_in_links, tenant_id), sign_in_links.c.expires_at < before
        )
    )
