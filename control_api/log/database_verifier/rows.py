"""The rows that a verification of a database reads beside `control_api.log.verify`: published
checkpoints, an entry's neighbours, and the tree's roots at some sizes. Verifies nothing."""

from collections.abc import Collection, Sequence

import orjson
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries import checkpoints, tree_nodes
from control_api.store.queries.purges import latest_anchor
from control_api.store.queries.tree_nodes import TooManyRows
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.trail.incarnation import is_origin_of
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.nodes import KnownNodes, NodeGap, Part, frontier_nodes
from policies.trail.verdict.checkpoint_judge import earlier_roots

PAGE = 5000
TRIES = 5
"""Purges run hourly. A reading that meets a purge in every try gives up."""


async def published_notes(connection: AsyncConnection, tenant: str) -> tuple[str, str, list[str]]:
    """The log's name, the origin of its newest checkpoints, and its latest note."""
    query = select(log_heads.c.log).where(of_tenant(log_heads, tenant))
    log = str((await connection.execute(query)).scalar() or "")
    incarnation = await checkpoints.latest_incarnation(connection, tenant)
    origin = log
    if incarnation is not None and is_origin_of(incarnation.origin, log):
        origin = incarnation.origin
    try:
        published = await checkpoints.latest(connection, tenant)
    except (ValueError, TypeError):
        return log, origin, []  # edited by hand: it proves nothing
    if published is None or published.origin != origin:
        return log, origin, []
    return log, origin, [published.note]


async def last_entry(connection: AsyncConnection, tenant: str) -> str:
    """The time of the newest entry, empty if it can't be read."""
    query = (
        select(log_entries.c.entry)
        .where(of_tenant(log_entries, tenant))
        .order_by(log_entries.c.seq.desc())
        .limit(1)
    )
    raw = (await connection.execute(query)).scalar()
    try:
        return str(orjson.loads(raw or b"")["ts"])
    except (ValueError, TypeError, LookupError):
        return ""


async def neighbour_rows(
    connection: AsyncConnection, tenant: str, seq: int
) -> list[tuple[str, bytes]]:
    """The entry at `seq` and those beside it, as far as they exist."""
    query = (
        select(log_entries.c.seq, log_entries.c.entry)
        .where(
            of_tenant(log_entries, tenant), log_entries.c.seq >= seq - 1,
            log_entries.c.seq <= seq + 1,
        )
        .order_by(log_entries.c.seq)
    )  # fmt: skip
    marks = {seq - 1: "before", seq: "here", seq + 1: "after"}
    rows = (await connection.execute(query)).all()
    # SQLite does not enforce column types: an entry may have become a text.
    return [
        (marks[row.seq], row.entry if isinstance(row.entry, bytes) else str(row.entry).encode())
        for row in rows
    ]


async def roots_at(store: Store, tenant: str, sizes: Collection[int], end: int) -> dict[int, bytes]:
    """The roots of the tree at those of `sizes` that are not above `end`. The entries up to there
    must be verified, since only the hashes beside them are read."""
    wanted = sorted(size for size in sizes if size <= end)
    roots: dict[int, bytes] | None = None
    tries = TRIES
    # A purge that removes entries while they are read leaves a gap: read again from its anchor.
    while wanted and roots is None and tries:
        roots, tries = await _roots_at(store, tenant, wanted), tries - 1
    return {size: root for size, root in (roots or {}).items() if size in sizes}


async def _roots_at(store: Store, tenant: str, wanted: Sequence[int]) -> dict[int, bytes] | None:
    """The roots at the sizes in `wanted`, which is in order; None if an entry is missing."""
    async with store.snapshot(tenant) as connection:
        try:
            anchor = await latest_anchor(connection, tenant)
            tree = Frontier() if anchor is None else anchor.purged.tree()
        except (ValueError, TypeError):
            return {}
        purged = {size for size in wanted if 0 < size < tree.size}
        roots = await _purged_roots(connection, tenant, tree, purged)
    roots |= earlier_roots(tree)
    while tree.size < wanted[-1]:
        query = (
            select(log_entries.c.seq, log_entries.c.hash)
            .where(of_tenant(log_entries, tenant), log_entries.c.seq >= tree.size)
            .order_by(log_entries.c.seq)
            .limit(min(PAGE, wanted[-1] - tree.size))
        )
        async with store.reading(tenant) as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return None
        for row in rows:
            if row.seq != tree.size:
                return None
            tree.append(row.hash)
            if tree.size in wanted:
                roots[tree.size] = tree.root()
    return roots


async def _purged_roots(
    connection: AsyncConnection, tenant: str, anchor: Frontier, sizes: Collection[int]
) -> dict[int, bytes]:
    """The roots at sizes inside the purged prefix, where stored nodes prove that the anchor's tree
    begins with that tree: those at multiples of 256, and at most checkpoints that are kept."""
    roots: dict[int, bytes] = {}
    for size in sizes:
        known, parts = KnownNodes(), tree_proofs.consistency_parts(size, anchor.size)
        wanted = {*(node for part in parts for node in part.nodes()), *frontier_nodes(size)}
        try:
            stored = await checkpoints.at(connection, tenant, size)
            if stored is not None:
                known.add_frontier(Frontier.from_bytes(size, stored.frontier))
            known.add_frontier(anchor)
            await connection.run_sync(tree_nodes.read, tenant, wanted, known)
            hashes = [part.root(known.hash) for part in parts]
            root = Part(0, size).root(known.hash)
        except (NodeGap, TooManyRows, ValueError, TypeError):
            continue
        # Stored nodes may be forged: only a proof that leads to the anchor's root counts.
        if tree_proofs.proves_consistency(size, root, anchor.size, anchor.root(), hashes):
            roots[size] = root
    return roots
