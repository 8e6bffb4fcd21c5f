"""Reads the changes that a tenant's log records, newest first: who changed what, and from what to
what. An `incarnation` entry is a change of the log itself.

Filters are not columns, so a request looks at no more than `MAX_SCANNED` entries: a page may be
short, or empty, and still have a next one. Bodies of policies come from their history, if they have
the digests that the entry holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries import policy_rows
from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.canonical import encode
from policies.trail.change import object_digest

MAX_SCANNED = 20_000
MAX_BODY_BYTES = 2 * 1024 * 1024
"""The size in bytes of the changes' `before` and `after` at which a page ends."""
_ROWS = 500


@dataclass(frozen=True, slots=True)
class ChangeFilters:
    """Filters of the list of changes: a change must have each of these values; None matches all.
    Its time must be at or after `since` and before `until`, both in microseconds."""

    object_type: str | None = None
    object_id: str | None = None
    action: str | None = None
    actor: str | None = None
    since: int | None = None
    until: int | None = None


class Change(NamedTuple):
    """A change of an object of the policy set, as its log entry records it. `before` and `after`
    are the policy's two versions; for other objects they hold only the members that differ. Each is
    None if it is not known, or if the object did not exist. `reason` is None unless one was
    recorded."""

    seq: int
    event_id: str
    leaf_hash: bytes
    timestamp: str
    object_type: str
    object_id: str
    action: str
    actor: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    reason: str | None


class ChangePage(NamedTuple):
    """A page of changes. Pass `next` as `before_seq` for the following page; it is None on the last
    page."""

    changes: list[Change]
    next: int | None


async def changes(
    store: Store, tenant_id: str, filters: ChangeFilters, limit: int, before_seq: int | None = None
) -> ChangePage:
    """Return a page of the changes that match the filters, newest first, from those with a `seq`
    below `before_seq` (None: from the newest)."""
    async with store.reading(tenant_id) as connection:
        found, position = await _matching(connection, tenant_id, filters, limit, before_seq)
        page: list[Change] = []
        room = MAX_BODY_BYTES
        for row, pub in found:
            change = await _change(connection, tenant_id, row, pub)
            page.append(change)
            room -= len(orjson.dumps((change.before, change.after)))
            if room < 0:
                return ChangePage(page, row.seq)
    return ChangePage(page, position)


LOG_ACCEPTED, LOG_RESTORED = "log.incarnation_accepted", "log.restored"
"""The actions that an `incarnation` entry is listed as: an operator accepted that the log goes on
under a new origin, or the service found that the database was restored from a backup."""
_Found = tuple[Row[Any], dict[str, Any]]


async def _matching(
    connection: AsyncConnection,
    tenant_id: str,
    filters: ChangeFilters,
    limit: int,
    before_seq: int | None,
) -> tuple[list[_Found], int | None]:
    """Return up to `limit` matching entries, and the `seq` before which a search for more continues
    (None if there are no more)."""
    found: list[_Found] = []
    position = before_seq
    # As canonical JSON writes them: to look for bytes costs a tenth of decoding the entry.
    wanted = {"target": filters.object_id, "by": filters.actor}
    parts = [encode({name: value})[1:-1] for name, value in wanted.items() if value is not None]
    for _ in range(MAX_SCANNED // _ROWS):
        rows = await _page(connection, tenant_id, filters, position)
        for row in rows:
            if row.kind == "incarnation" or all(part in row.entry for part in parts):
                pub = orjson.loads(row.entry)["pub"]
                if row.kind == "incarnation":
                    pub = _as_change(pub, tenant_id)
                if _matches(pub, filters):
                    found.append((row, pub))
            position = row.seq
            if len(found) == limit:
                return found, position if row is not rows[-1] or len(rows) == _ROWS else None
        if len(rows) < _ROWS:
            return found, None
    return found, position


async def _page(
    connection: AsyncConnection, tenant_id: str, filters: ChangeFilters, before: int | None
) -> list[Any]:
    rows: list[Any] = []
    # One kind at a time: only then does the index give them in their order, without a sort.
    for kind in ("change", "incarnation"):
        query = select(
            log_entries.c.seq, log_entries.c.kind, log_entries.c.entry, log_entries.c.hash
        ).where(
            of_tenant(log_entries, tenant_id),
            # In the words of the index's condition: otherwise no database uses it.
            text(f"kind = '{kind}' AND kind NOT IN ('decision', 'lineage')"),
            log_entries.c.seq >= first_kept(tenant_id),
        )
        if before is not None:
            query = query.where(log_entries.c.seq < before)
        if filters.since is not None:
            query = query.where(log_entries.c.ts >= filters.since)
        if filters.until is not None:
            query = query.where(log_entries.c.ts < filters.until)
        found = await connection.execute(query.order_by(log_entries.c.seq.desc()).limit(_ROWS))
        rows += found.all()
    return sorted(rows, key=lambda row: row.seq, reverse=True)[:_ROWS]


def _as_change(pub: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """Return the `pub` of an `incarnation` entry in the form that the `pub` of a `change` entry
    has. The actor is `system`, because the entry names no person: a command on the host or the
    service itself wrote it."""
    if "origin" in pub:
        what, before = LOG_ACCEPTED, {"checkpoint": pub["cited"]}
        after = {name: pub[name] for name in ("number", "origin")}
    else:
        what, before = LOG_RESTORED, {"revision": pub["seen"]}
        after = {"revision": pub["held"], "out_of_force": pub["doubted"]}
    detail = {"reason": pub["reason"]}
    named = {"what": what, "target": tenant_id, "by": "system"}
    return {**named, "before": before, "after": after, "detail": detail}


def _matches(pub: Mapping[str, Any], filters: ChangeFilters) -> bool:
    object_type, _, action = pub["what"].partition(".")
    wanted = (
        (filters.object_type, object_type),
        (filters.object_id, pub["target"]),
        (filters.action, action),
        (filters.actor, pub["by"]),
    )
    return all(value is None or value == actual for value, actual in wanted)


async def _change(
    connection: AsyncConnection, tenant_id: str, row: Row[Any], pub: Mapping[str, Any]
) -> Change:
    object_type, _, action = pub["what"].partition(".")
    before, after = pub.get("before"), pub.get("after")
    if object_type == "policy" and not _whole(pub):
        version = pub["detail"]["version"]
        # The entry's own members prove themselves; a body only counts if it has the digest.
        kept = await policy_rows.versions(connection, tenant_id, pub["target"], version + 1, 2)
        bodies = {object_digest(each.body): each.body for each in kept}
        before = bodies.get(pub["before_sha256"], before)
        after = bodies.get(pub["after_sha256"], after)
    entry = orjson.loads(row.entry)
    return Change(
        row.seq,
        entry["eid"],
        row.hash,
        entry["ts"],
        object_type,
        pub["target"],
        action,
        pub["by"],
        before,
        after,
        pub["detail"].get("reason"),
    )


def _whole(pub: Mapping[str, Any]) -> bool:
    """Return whether the entry itself holds all that can be shown: it has no digests, or its
    `before` and `after` have the digests that it names."""
    return "before_sha256" not in pub or all(
        object_digest(pub.get(name)) == pub[f"{name}_sha256"] for name in ("before", "after")
    )
