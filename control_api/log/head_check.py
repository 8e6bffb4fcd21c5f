"""Checks at startup that each log's head matches its log. This is quick and partial; `verify` is
complete.

A head whose count differs from the entries, or that does not follow the last one, means that the
database was restored, edited, or written to by another program. Everything appended to it would be
numbered and chained wrongly forever, so a mismatch is fatal.
"""

from collections.abc import Sequence

from sqlalchemy import and_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.errors import UnknownState
from control_api.store.queries.purges import latest_anchor
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.store import Store
from policies.trail.merkle_tree import Frontier, leaf_hash

MAX_LEAVES = 64
"""Leaves of the largest subtree to recompute: of 64 consecutive sizes, at most one ends in a larger
one."""

PAGE = 500


async def check_heads(store: Store) -> None:
    """Raises `UnknownState`, naming the log, if a head does not match."""
    after = ""
    while logs := await _logs(store, after):
        for tenant_id in logs:
            # A snapshot, because another replica may purge entries between two of the reads.
            async with store.snapshot(tenant_id) as connection:
                await _check_head(connection, tenant_id)
        after = logs[-1]


async def _logs(store: Store, after: str) -> Sequence[str]:
    """A page of the tenants that have a log, in order of id."""
    query = select(log_heads.c.tenant_id).where(log_heads.c.tenant_id > after)
    async with store.reading_all_tenants() as connection:
        found = await connection.execute(query.order_by(log_heads.c.tenant_id).limit(PAGE))
        return found.scalars().all()


async def _check_head(connection: AsyncConnection, tenant_id: str) -> None:
    row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one()
    log, size, leaf, frontier, top, entry, stored = row
    # These three checks do not read the whole log. They find what a restore or an edit changed at
    # its end, which is where the next append would build on it.
    if (-1 if top is None else top) != size - 1:
        raise UnknownState(f"log `{log}` ends at seq {top}, but its head counts {size} entries")
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
    if not 0 < last <= MAX_LEAVES:
        return  # too many leaves to read at every start
    expected, first = await _tree_before(connection, tenant_id, log, size - last)
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
        expected.append(leaf)
    if expected.hashes[-1:] != tree.hashes[-1:]:
        raise UnknownState(f"the frontier of log `{log}` is not that of its last {last} entries")


async def _tree_before(
    connection: AsyncConnection, tenant_id: str, log: str, first: int
) -> tuple[Frontier, int]:
    """The tree to append the last entries to, and the first of them: an empty tree at the start of
    their subtree or, if retention has removed that start, the tree that the anchor holds."""
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
