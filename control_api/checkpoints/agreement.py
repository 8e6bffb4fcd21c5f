"""Whether a log's entries agree with the checkpoints that it has to agree with.

Reads back what is new since a checkpoint that was signed; everything, if there is no such
checkpoint or if something differs. Signs nothing.
"""

from control_api.checkpoints.divergence import Diverged
from control_api.checkpoints.expected import Expected
from control_api.checkpoints.read_back import (
    EntriesMissing,
    ReadBack,
    RootDiffers,
    StoredNode,
    read_back,
)
from control_api.store.queries import checkpoints
from control_api.store.queries.purges import latest_anchor
from control_api.store.store import Store
from policies.ground.errors import Unavailable
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import Anchor

TRIES = 5
"""Purges run hourly. An examination that meets a purge in every try gives up."""


async def read_agreeing(store: Store, tenant_id: str, expected: Expected) -> list[StoredNode]:
    """Reads back what is new. Returns the nodes of the tree to store. Raises `Diverged` unless the
    entries' tree passes through every expected checkpoint and is the head's."""
    base = await _base(store, tenant_id, expected)
    if base is not None:
        found = await _read(store, tenant_id, expected, base)
        if isinstance(found, ReadBack):
            return found.nodes
    # There is no base, or it does not lead to the head: what was changed may be below it.
    for _ in range(TRIES):
        anchor = await _anchor(store, tenant_id, expected)
        start = Frontier() if anchor is None else anchor.purged.tree()
        found = await _read(store, tenant_id, expected, start)
        if isinstance(found, ReadBack):
            return found.nodes
        # If a purge removed rows that were being read, their absence proves nothing.
        if await _anchor(store, tenant_id, expected) == anchor:
            raise Diverged.of(tenant_id, found)
    raise Unavailable(f"the log of tenant `{tenant_id}` is being purged")


async def _anchor(store: Store, tenant_id: str, expected: Expected) -> Anchor | None:
    async with store.reading(tenant_id) as connection:
        try:
            anchor = await latest_anchor(connection, tenant_id)
            fault = anchor and anchor.fault(expected.state.log, expected.publics)
        except (ValueError, TypeError):
            anchor, fault = None, "the anchor can't be read"
    if fault:
        raise Diverged.of(tenant_id, Finding(None, Reason.ANCHOR_INVALID, fault))
    return anchor


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


async def _read(
    store: Store, tenant_id: str, expected: Expected, start: Frontier
) -> ReadBack | Finding:
    state = expected.state
    if expected.before and expected.before[0].size < start.size:
        # `read_expected` has compared the anchor of then. The next try reads both again.
        raise Unavailable(f"the log of tenant `{tenant_id}` was purged meanwhile")
    try:
        found = await read_back(store, tenant_id, start, state.size, expected.before)
    except RootDiffers as error:
        return Finding(error.size, Reason.ROOT_MISMATCH, str(error))
    except EntriesMissing as error:
        return Finding(error.seq, Reason.ENTRIES_MISSING, str(error))
    if found.tree != state.tree:
        text = f"the entries from {start.size} on do not hash to the head's tree"
        return Finding(state.size, Reason.HEAD_MISMATCH, text)
    return found
