"""Finds the prefix of a log that is old enough to purge, and proves that nothing in it was changed.

Only reads. Does not know how a prefix is removed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.scan import LogRange, excuse_redacted, scan
from control_api.store.counters.counters import DAY
from control_api.store.queries import holds, tenant_rows
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.canonical import b64, micros
from policies.trail.removal import PURGE, Anchor, Purged
from policies.trail.verify import Verifier

PAUSE = 0.001
"""Seconds that other tasks get after each millisecond of verifying."""
QUIET = 24
"""A purge of at most this many entries is skipped if they are only what an idle log writes by
itself, which is one entry an hour."""
PAGE_ROWS = 250
"""Rows of a page. Bounds how long decoding one database answer blocks the event loop."""


class PurgeMismatch(Exception):
    """the entries to purge are not what was recorded: nothing is removed, because the evidence
    would go with them"""


@dataclass(frozen=True, slots=True)
class DuePurge:
    """A prefix of the log named `log` that is due to be purged, and was verified."""

    log: str
    purged: Purged


async def prove(
    store: Store, tenant_id: str, before: Anchor | None, publics: Collection[bytes]
) -> DuePurge | None:
    """Return the verified prefix to purge, which begins after the anchor `before`; None if nothing
    is due. Raises `PurgeMismatch` if the prefix or the anchor does not verify."""
    first = 0 if before is None else before.purged.size
    async with store.reading(tenant_id) as connection:
        cutoff = await cutoff_of(connection, tenant_id, store.clock.now())
        head = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
        if cutoff is None or head is None:
            return None
        cut = await _cut(connection, tenant_id, first, head.size, cutoff)
        cut = await before_held(connection, tenant_id, range(first, cut), head.size)
        if not await _worthwhile(connection, tenant_id, first, cut):
            return None
        follows = None if cut == head.size else await _entry(connection, tenant_id, cut)
    log = head.log
    if before is not None and (fault := before.fault(log, publics)):
        raise PurgeMismatch(f"log `{log}`: {fault}")
    verifier = Verifier(log, after=None if before is None else before.purged)
    # Scan slowly: nothing waits for a purge, and evaluations share the event loop.
    part = LogRange(first, cut, head.size, PAUSE, PAGE_ROWS)
    found = await scan(store, tenant_id, verifier, part)
    tree, last_leaf, broken = verifier.reached()
    # An opening may have been erased long after its entry was recorded, behind the cut.
    await excuse_redacted(store, tenant_id, verifier.erasures, cut)
    missing = next(iter(verifier.erasures.findings(1)), None)
    if found := found or broken or missing:
        raise PurgeMismatch(f"log `{log}`: {found.message}")
    # If the last rows are missing, the scan ends early without a fault.
    if tree.size != cut:
        raise PurgeMismatch(f"log `{log}`: entries before seq {cut} are missing")
    # The entry after the cut stays, and must cite the leaf that the anchor will hold: otherwise the
    # rest of the log would never verify again.
    if follows is not None and follows.get("prev") != b64(last_leaf):
        raise PurgeMismatch(f"log `{log}`: seq {cut} does not follow the entry before it")
    return DuePurge(log, Purged(cut, tree.root(), tree.to_bytes(), last_leaf, cutoff, cut - first))


async def cutoff_of(connection: AsyncConnection, tenant_id: str, now: int) -> int | None:
    """Return the time (microseconds) before which recorded entries are due to be purged; None if
    all are kept forever."""
    tenant = await tenant_rows.get(connection, tenant_id)
    if tenant is None or not tenant.retention_days:
        return None
    return now - tenant.retention_days * DAY


async def before_held(connection: AsyncConnection, tenant_id: str, due: range, size: int) -> int:
    """Return the end of the part of the prefix `due` that may be purged although legal holds exist,
    in a log of `size`. Only a prefix can be purged, so everything after the first held entry stays
    too."""
    held = await holds.active(connection, tenant_id)
    if not held:
        return due.stop
    first = await holds.first_held(connection, tenant_id, held, due, size)
    return due.stop if first is None else first


async def _cut(
    connection: AsyncConnection, tenant_id: str, first: int, size: int, cutoff: int
) -> int:
    """Return the first `seq` recorded at or after `cutoff`, found by binary search. Recording times
    never run backwards; `prove` verifies that before anything is removed."""
    low, high = first, size
    while low < high:
        middle = (low + high) // 2
        entry = await _entry(connection, tenant_id, middle)
        try:
            old = micros(entry["ts"]) < cutoff
        except (ValueError, TypeError, LookupError) as error:
            raise PurgeMismatch(
                f"entry {middle} of tenant `{tenant_id}` has no valid `ts`"
            ) from error
        low, high = (middle + 1, high) if old else (low, middle)
    return low


async def _worthwhile(connection: AsyncConnection, tenant_id: str, first: int, cut: int) -> bool:
    """Return whether there is more to purge than what an idle log writes by itself. Otherwise such
    a log would purge its hourly heartbeat, and append an entry about that, every hour."""
    if not first < cut <= first + QUIET:
        return cut > first
    kinds = [(await _entry(connection, tenant_id, seq)).get("kind") for seq in range(first, cut)]
    return not set(kinds) <= {PURGE, "heartbeat"}


async def _entry(connection: AsyncConnection, tenant_id: str, seq: int) -> dict[str, Any]:
    row = (await connection.execute(_ENTRY, {"tenant": tenant_id, "seq": seq})).one_or_none()
    if row is None:
        raise PurgeMismatch(f"entry {seq} of tenant `{tenant_id}` is missing")
    try:
        entry = orjson.loads(row.entry)
    except ValueError as error:
        raise PurgeMismatch(f"entry {seq} of tenant `{tenant_id}` can't be read") from error
    return entry if isinstance(entry, dict) else {}


_HEAD = select(log_heads.c.log, log_heads.c.size).where(of_tenant(log_heads))
_ENTRY = select(log_entries.c.entry).where(
    of_tenant(log_entries), log_entries.c.seq == bindparam("seq")
)
