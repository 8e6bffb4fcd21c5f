"""Finds the `purge` entry that tells a log whose oldest entries retention removed from one whose
oldest rows were deleted: without it, no file of the log would verify."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log import anchor_check
from policies.ground.errors import Conflict, Unavailable
from policies.trail.purge import Anchor


class PurgeEntry(NamedTuple):
    """The `purge` entry `seq`, its bytes as text."""

    seq: int
    text: str


async def shown_purge(
    connection: AsyncConnection,
    tenant_id: str,
    log: str,
    anchor: Anchor,
    publics: Collection[bytes],
) -> PurgeEntry:
    """The `purge` entry of the anchor. Raises `Conflict` if the log does not show that retention
    removed what precedes its oldest entry, and `Unavailable` if no checkpoint covers that yet.
    `publics` are the keys trusted to sign the log."""
    kept, fault = anchor.purged.size, anchor.fault(log, publics)
    raw = await anchor_check.purge_entry(connection, tenant_id, anchor)
    if fault is not None or raw is None:
        why = fault or f"entry {anchor.seq} is not the `purge` entry that says so"
        raise Conflict(
            f"the entries before {kept} are gone as if retention had removed them, but {why}: "
            "nothing is exported, since no such file verifies; examine the database with "
            "`sluice verify --database`, and restore it from a backup"
        )
    if anchor.cover_note is None:
        raise Unavailable(
            f"retention is removing the entries before {kept}, and no checkpoint covers that yet: "
            "try again in a few seconds"
        )
    return PurgeEntry(anchor.seq, raw.decode())
