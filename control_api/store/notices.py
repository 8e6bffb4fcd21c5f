"""Notices of a tenant's new revision, which PostgreSQL brings to the other processes (`NOTIFY`).

A notice goes out with the commit of its transaction, or not at all. It contains only the tenant and
the revision to look up: every role that may connect to the database can read it, and can send one.
SQLite has one process, and needs no notices.
"""

from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

CHANNEL = "sluice_changes"
_DIGITS = 18
_SEND = text("SELECT pg_notify(:channel, :payload)")


class Notice(NamedTuple):
    """A notice that the tenant's policy set is at `revision`, or was a moment ago."""

    tenant_id: str
    revision: int


async def send(connection: AsyncConnection, tenant_id: str, revision: int) -> None:
    """Send the revision to every listening process, once this transaction commits. Does nothing on
    SQLite."""
    if connection.dialect.name == "postgresql":
        await send_to(connection, CHANNEL, f"{revision} {tenant_id}")


async def send_to(connection: AsyncConnection, channel: str, payload: str = "") -> None:
    await connection.execute(_SEND, {"channel": channel, "payload": payload})


def parse(payload: str) -> Notice | None:
    """Return the notice in a payload; None if the payload does not have our format."""
    revision, _, tenant_id = payload.partition(" ")
    if not (revision.isascii() and revision.isdigit() and len(revision) <= _DIGITS and tenant_id):
        return None
    return Notice(tenant_id, int(revision))
