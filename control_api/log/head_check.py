"""Whether each log's head fits the log, as far as a start can look; verification looks at it all.

A head that counts other than the entries, or chains on from another leaf, means that the database
was restored, edited, or written to by something that isn't us. What we would append to it would be
numbered and chained wrongly for ever. So it is fatal.
"""

from collections.abc import Sequence

from sqlalchemy import and_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.errors import UnknownState
from control_api.store.queries.purges import latest_anchor
from control_api.store.schema.tables import log_entries, log_heads
from control_api.store.store import Store
from policies.trail.merkle_tree import Frontier, leaf_hash

LEAVES = 64
"""The largest subtree that is computed again: of 64 sizes, all but one end in one as small."""

PAGE = 500


async def check_heads(store: Store) -> None:
    """`UnknownState`, naming the log, where one does not fit."""
    after = ""
    while logs := await _logs(store, after):
        for tenant_id in logs:
            async with store.reading(tenant_id) as connection:
                await _check_head(connection, tenant_id)
        after = logs[-1]


async def _logs(store: Store, after: str) -> Sequence[str]:
    """The tenants that have a log, some of them, in order of id."""
    query = select(log_heads.c.tenant_id).where(log_heads.c.tenant_id > after)
    async with store.reading_all_tenants() as connection:
        found = await connection.execute(query.order_by(log_heads.c.tenant_id).limit(PAGE))
        return found.scalars().all()


async def _check_head(connection: AsyncConnection, tenant_id: str) -> None:
    # In one statement: head and entry as they were at one moment, whoever appends meanwhile.
    row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one()
    log, size, leaf, frontier, top, entry, stored = row
    if (-1 if top is None else top) != size - 1:
        raise UnknownState(f"log `{log}` ends at seq {top}, its head counts {size} entries")
    if size and not leaf == stored == leaf_hash(entry):
        raise UnknownState(f"the head of log `{log}` does not follow its last entry")
    await _check_frontier(connection, tenant_id, log, size, frontier)


async def _check_frontier(
    connection: AsyncConnection, tenant_id: str, log: str, size: int, frontier: bytes
) -> None:
    try:
        tree = Frontier.from_bytes(size, frontier)
    except ValueError as error:
        raise UnknownState(f"the head of log `{log}` can't be read: {error}") from error
    last = size & -size  # leaves of the smallest complete subtree, which ends at the last entry
    if not 0 < last <= LEAVES:
        return
    begun, first = await _begun(connection, tenant_id, log, size - last)
    leaves = await connection.execute(
        select(log_entries.c.hash)
        .where(
            log_entries.c.tenant_id == tenant_id,
            log_entries.c.seq >= first,
            log_entries.c.seq < size,
        )
        .order_by(log_entries.c.seq)
    )
    for leaf in leaves.scalars():
        begun.append(leaf)
    if begun.hashes[-1:] != tree.hashes[-1:]:
        raise UnknownState(f"the frontier of log `{log}` is not that of its last {last} entries")


async def _begun(
    connection: AsyncConnection, tenant_id: str, log: str, first: int
) -> tuple[Frontier, int]:
    """The tree that the last entries are appended to, and the first of them: an empty one at the
    start of their subtree, or, where retention has removed that, what the anchor holds of it."""
    try:
        anchor = await latest_anchor(connection, tenant_id)
        if anchor is None or anchor.purged.size <= first:
            return Frontier(), first
        return anchor.purged.tree(), anchor.purged.size
    except (ValueError, TypeError) as error:
        raise UnknownState(f"the anchor of log `{log}` can't be read: {error}") from error


_TOP = (
    select(func.max(log_entries.c.seq))
    .where(log_entries.c.tenant_id == log_heads.c.tenant_id)
    .correlate(log_heads)
    .scalar_subquery()
)
_LAST = and_(
    log_entries.c.tenant_id == log_heads.c.tenant_id, log_entries.c.seq == log_heads.c.size - 1
)
_HEAD = (
    select(
        log_heads.c.log,
        log_heads.c.size,
        log_heads.c.last_leaf,
        log_heads.c.frontier,
        _TOP,
        log_entries.c.entry,
        log_entries.c.hash,
    )
    .select_from(log_heads.outerjoin(log_entries, _LAST))
    .where(log_heads.c.tenant_id == bindparam("tenant"))
)
