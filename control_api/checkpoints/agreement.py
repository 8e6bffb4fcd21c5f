"""Whether a log's entries agree with the checkpoints that it has to agree with.

Reads back what is new since a checkpoint that was signed; everything, if there is no such
checkpoint or if something differs. Signs nothing.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.checkpoints.expected import Expected
from control_api.checkpoints.read_back import EntriesMissing, RootDiffers, read_back
from control_api.store.queries import checkpoints
from control_api.store.queries.purges import latest_anchor
from control_api.store.store import Store
from policies.ground.errors import Unavailable
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import Anchor

TRIES = 5
"""Purges run hourly. An examination that meets a purge in every try gives up."""


async def disagreement(store: Store, tenant_id: str, expected: Expected) -> Finding | None:
    """None if the entries' tree passes through every expected checkpoint and is the head's."""
    base = await _base(store, tenant_id, expected)
    if base is not None and await _fault(store, tenant_id, expected, base) is None:
        return None
    # There is no base, or it does not lead to the head: what was changed may be below it.
    for _ in range(TRIES):
        try:
            async with store.reading(tenant_id) as connection:
                anchor = await latest_anchor(connection, tenant_id)
        except (ValueError, TypeError):
            return Finding(None, Reason.ANCHOR_INVALID, "the anchor can't be read")
        finding = await _whole(store, tenant_id, expected, anchor)
        if finding is None:
            return None
        async with store.reading(tenant_id) as connection:
            # If a purge removed rows that were being read, their absence proves nothing.
            if await _same_anchor(connection, tenant_id, anchor):
                return finding
    raise Unavailable(f"the log of tenant `{tenant_id}` is being purged")


async def _base(store: Store, tenant_id: str, expected: Expected) -> Frontier | None:
    """A tree to continue, so that only new entries are read. It comes from the database; the first
    expected checkpoint, which it leads to, proves it."""
    if not expected.before:
        return None
    state, first = expected.state, expected.before[0].size
    row = state.published
    try:
        if row is None or row.size > first:
            async with store.reading(tenant_id) as connection:
                row = await checkpoints.upto(connection, tenant_id, state.origin, first)
        return None if row is None else Frontier.from_bytes(row.size, row.frontier)
    except (ValueError, TypeError):  # edited by hand
        return None


async def _whole(
    store: Store, tenant_id: str, expected: Expected, anchor: Anchor | None
) -> Finding | None:
    if anchor is None:
        return await _fault(store, tenant_id, expected, Frontier())
    if fault := anchor.fault(expected.state.log, expected.publics):
        return Finding(anchor.seq, Reason.ANCHOR_INVALID, fault)
    return await _fault(store, tenant_id, expected, anchor.purged.tree())


async def _fault(
    store: Store, tenant_id: str, expected: Expected, tree: Frontier
) -> Finding | None:
    state, first = expected.state, tree.size
    if expected.before and expected.before[0].size < first:
        text = f"the entries up to {first} were purged, but a checkpoint is of fewer"
        return Finding(first, Reason.PURGE_UNCOVERED, text)
    try:
        await read_back(store, tenant_id, tree, state.size, expected.before)
    except RootDiffers as error:
        return Finding(error.size, Reason.ROOT_MISMATCH, str(error))
    except EntriesMissing:
        text = f"entry {tree.size} is missing, though the head counts {state.size} entries"
        return Finding(tree.size, Reason.ENTRIES_MISSING, text)
    if tree != state.tree:
        text = f"the entries from {first} on do not hash to the head's tree"
        return Finding(state.size, Reason.HEAD_MISMATCH, text)
    return None


async def _same_anchor(connection: AsyncConnection, tenant_id: str, anchor: Anchor | None) -> bool:
    try:
        now = await latest_anchor(connection, tenant_id)
    except (ValueError, TypeError):
        return True  # edited by hand, not moved by a purge
    return (None if now is None else now.seq) == (None if anchor is None else anchor.seq)
