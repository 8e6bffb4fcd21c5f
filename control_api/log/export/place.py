"""Finds a part of the log for an export: the entries between two bounds, the tree before them, and
the proof that the last of them is part of a signed tree.

The tree's stored nodes are not checked here: if one was changed, the file does not verify, as it
should. Knows nothing of the file's format.
"""

from collections.abc import Collection
from dataclasses import dataclass

import orjson
from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries import tree_nodes
from control_api.store.queries.purges import latest_anchor
from control_api.store.queries.tree_nodes import TooManyRows
from control_api.store.schema.log import log_entries, log_heads
from control_api.store.schema.statements import of_tenant
from policies.ground.canonical import micros
from policies.ground.errors import Conflict, NotFound, Unavailable
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.nodes import KnownNodes, Node, NodeGap, frontier_nodes
from policies.trail.removal import Anchor

NEAR = 16
"""Rows among which a recording time is looked for, if the entry asked for is missing or damaged."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A recording time, in microseconds since 1970 UTC."""

    micros: int


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of the log named `log`, which has `size` entries: those from `first` up to `until`
    (exclusive). `anchor` says where its last purge cut it, None if nothing was purged."""

    log: str
    first: int
    until: int
    size: int
    anchor: Anchor | None


async def find_part(
    connection: AsyncConnection,
    tenant_id: str,
    first: int | Moment | None,
    until: int | Moment | None,
) -> LogPart:
    """Return the part between two bounds. None means the oldest kept entry, or the end of the log.
    Raises `NotFound` if the log has no entry yet, and `Conflict` if it is too damaged to find a
    bound."""
    head = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
    if head is None:
        raise NotFound("the log has no entry yet")
    anchor = await latest_anchor(connection, tenant_id)
    kept = 0 if anchor is None else anchor.purged.size
    begin = await _seq(connection, tenant_id, first or kept, kept, head.size)
    end = head.size if until is None else until
    end = max(begin, await _seq(connection, tenant_id, end, kept, head.size))
    return LogPart(head.log, begin, end, head.size, anchor)


async def _seq(
    connection: AsyncConnection, tenant_id: str, bound: int | Moment, kept: int, size: int
) -> int:
    """Return a bound as a `seq` from `kept` to `size`."""
    if isinstance(bound, Moment):
        return await first_recorded(connection, tenant_id, kept, size, bound.micros)
    return min(max(bound, kept), size)


async def first_recorded(
    connection: AsyncConnection, tenant_id: str, first: int, until: int, time: int
) -> int:
    """Return the first entry between `first` and `until` that was recorded at or after `time`
    (microseconds since 1970 UTC); `until` if there is none. Recording times never run backwards, so
    it is found by binary search. Raises `Conflict` if the log is too damaged to tell."""
    low, high = first, until
    while low < high:
        middle = (low + high) // 2
        recorded = await _recorded(connection, tenant_id, middle)
        low, high = (middle + 1, high) if recorded < time else (low, middle)
    return low


async def _recorded(connection: AsyncConnection, tenant_id: str, seq: int) -> int:
    """Return when entry `seq`, or the next one that can be read, was recorded (microseconds)."""
    wanted = {"tenant": tenant_id, "seq": seq}
    for entry in (await connection.execute(_NEAR, wanted)).scalars():
        try:
            return micros(orjson.loads(entry)["ts"])
        except (ValueError, TypeError, LookupError):
            continue  # damaged: an export must still get at the entries around it
    raise Conflict(f"the entries from seq {seq} on are damaged: give `from` and `to` as numbers")


async def tree_before(connection: AsyncConnection, tenant_id: str, size: int) -> list[bytes]:
    """Return the frontier of the log's first `size` entries: the hashes of their complete subtrees.
    Raises `Conflict` if entries from which it follows are missing, and `Unavailable` if too many
    rows would have to be read."""
    nodes = frontier_nodes(size)
    known = await _known(connection, tenant_id, nodes)
    return [known.hash(*node) for node in nodes]


async def entry_proof(
    connection: AsyncConnection, tenant_id: str, seq: int, size: int
) -> list[bytes]:
    """Return the inclusion proof of entry `seq` in the tree of `size` entries. Raises like
    `tree_before`."""
    parts = tree_proofs.inclusion_parts(seq, size)
    wanted = {node for part in parts for node in part.nodes()}
    known = await _known(connection, tenant_id, wanted)
    return tree_proofs.inclusion_proof(seq, size, known.hash)


async def _known(
    connection: AsyncConnection, tenant_id: str, wanted: Collection[Node]
) -> KnownNodes:
    known = KnownNodes()
    anchor = await latest_anchor(connection, tenant_id)
    if anchor is not None:
        known.add_frontier(anchor.purged.tree())
    try:
        await connection.run_sync(tree_nodes.read, tenant_id, wanted, known)
    except NodeGap as gap:
        raise Conflict(
            f"the tree before the part can't be computed, since {gap}: export the whole log, "
            "without `from`"
        ) from gap
    except TooManyRows as error:
        raise Unavailable(
            f"nodes of the log's tree are missing: {error}; export the whole log, or try again once"
            " the scheduled verification has made them, within hours"
        ) from error
    return known


_NEAR = (
    select(log_entries.c.entry)
    .where(of_tenant(log_entries), log_entries.c.seq >= bindparam("seq"))
    .order_by(log_entries.c.seq)
    .limit(NEAR)
)
_HEAD = select(log_heads.c.log, log_heads.c.size).where(of_tenant(log_heads))
