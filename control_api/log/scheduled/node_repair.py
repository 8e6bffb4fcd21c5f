"""Keeps the stored nodes of a log's tree complete and right, while the scheduled verification walks
over it.

    newest     the checkpoint up to which nodes have to be stored
    lost       whether nodes are missing below it, so that a round has to begin for them
    begin      the nodes that one step over the log completes
    settle     writes those that are missing, and replaces those that differ

Nodes are an index: a proof from a wrong one is not given out. So a missing node is written as soon
as its entries verified. One that differs is replaced once the walk's tree has a signed root: until
then it may be the entries that were forged, and the node that is right. Neither is a finding.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row

from control_api.store.queries import checkpoints, tree_nodes
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.store import Store
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.nodes import WIDTH, Node, WideTree

MAX_HELD = 65_536
"""The most differing nodes, of all logs, that wait for a signed root: those of 16 million entries,
in some 15 MB. Any beyond that are found again by the next round."""
COUNT_SECONDS = 3600.0
"""Seconds until a log's stored nodes are counted again, which reads one row of an index per 256
entries."""
_log = logging.getLogger("sluice.self_verification")


class StepNodes:
    """The nodes of the Merkle tree that are completed by the entries of one verification step. They
    have to be stored up to the checkpoint `newest`. `reached` is the largest checkpoint with which
    this step can compare the tree; None if there is none. `held` are nodes of earlier steps that
    differ from the stored ones, and that no signed root has proven yet."""

    def __init__(
        self,
        start: Frontier,
        newest: Checkpoint | None,
        reached: Checkpoint | None,
        held: dict[Node, bytes],
    ) -> None:
        """Begin at the tree `start`. Raises `ValueError` if its hashes don't fit its size."""
        self.reached = reached
        self.held = held
        self._newest = newest
        self._tree = WideTree(start)
        self._made: dict[Node, bytes] = {}
        # The verifier compares only sizes that it comes to.
        passed = reached is not None and reached.size > start.size
        same = reached is not None and (reached.size, reached.root) == (start.size, start.root())
        self._proven = reached if passed or same else None

    def follow(self, rows: Sequence[Row[Any]]) -> None:
        if self._newest is not None:
            self._made.update(self._tree.append_all(row.hash for row in rows))

    async def settle(self, store: Store, tenant_id: str, room: int) -> None:
        """Write the nodes that are missing, and replace those that differ and are proven. At most
        `room` nodes stay in `held` afterwards. Call it only for a step without a finding."""
        made = _upto(self._newest, self._made)
        # A maker that stores nodes at the same time has computed the same ones.
        async with store.reading(tenant_id) as connection:
            stored = await tree_nodes.stored(connection, tenant_id, made)
        missing = {node: hash_ for node, hash_ in made.items() if node not in stored}
        self.held |= {node: made[node] for node, hash_ in stored.items() if hash_ != made[node]}
        proven = _upto(self._proven, self.held)
        if missing or proven:
            nodes = (missing | proven).items()
            # If we die here or after it, the step is repeated, and finds these nodes as they are.
            await store.write(
                tenant_id, lambda tx: tree_nodes.extend(tx.connection, tenant_id, nodes)
            )
            _log.warning(
                "nodes of the tree of tenant `%s` were made again up to entry %d: %d were missing,"
                " %d were wrong",
                tenant_id,
                self._tree.size,
                len(missing),
                len(proven),
            )
        kept = [each for each in self.held.items() if each[0] not in proven]
        self.held = dict(kept[:room])


class NodeRepair:
    """Repairs the stored nodes of one store's logs. The nodes that wait for a signed root are in
    memory: after a restart, the next round finds them again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, tuple[Frontier, dict[Node, bytes]]] = {}
        self._counted: dict[str, float] = {}

    async def newest(
        self, tenant_id: str, log: str, publics: Collection[bytes]
    ) -> Checkpoint | None:
        """Return the latest checkpoint of the log's current incarnation; None if there is none yet,
        or if it is not signed by one of `publics`."""
        async with self._store.reading(tenant_id) as connection:
            row = await checkpoints.readable_latest(connection, tenant_id)
            origin = await checkpoints.current_origin(connection, tenant_id, log)
        return _read(row, origin, publics)

    async def lost(self, tenant_id: str, first: int, newest: Checkpoint | None) -> bool:
        """Return whether nodes that cover 256 entries are missing above the entry `first`, where
        the log begins. Looks at most once an hour."""
        now = self._store.clock.monotonic()
        if newest is None or now < self._counted.get(tenant_id, now):
            return False
        self._counted[tenant_id] = now + COUNT_SECONDS
        places = range(first // WIDTH, newest.size // WIDTH)
        async with self._store.reading(tenant_id) as connection:
            return await tree_nodes.count(connection, tenant_id, places) < len(places)

    async def begin(
        self,
        tenant_id: str,
        start: Frontier,
        until: int,
        newest: Checkpoint | None,
        publics: Collection[bytes],
    ) -> StepNodes:
        """Return the nodes of a step that continues the tree `start` to at most `until` entries."""
        reached, (walked, held) = newest, self._held.pop(tenant_id, (None, {}))
        if newest is not None and newest.size > until:
            async with self._store.reading(tenant_id) as connection:
                try:
                    row = await checkpoints.upto(connection, tenant_id, newest.origin, until)
                except (ValueError, TypeError):  # edited by hand
                    row = None
            reached = _read(row, newest.origin, publics)
        if reached is not None and reached.size > until:
            reached = None  # its row was edited to have another size than it signs
        # Those of another walk don't belong to the tree that a root proves now.
        return StepNodes(start, newest, reached, held if walked == start else {})

    async def settle(self, tenant_id: str, nodes: StepNodes, reached: Frontier) -> None:
        """End a step without a finding, whose walk has come to the tree `reached`."""
        room = MAX_HELD - sum(len(held) for _, held in self._held.values())
        await nodes.settle(self._store, tenant_id, room)
        if nodes.held:
            copy = Frontier(reached.size, reached.hashes.copy())
            self._held[tenant_id] = copy, nodes.held


def _read(
    row: StoredCheckpoint | None, origin: str, publics: Collection[bytes]
) -> Checkpoint | None:
    """Return the checkpoint that a stored note signs; None if it is not signed by one of `publics`.
    A missing signature is no error here: the checkpoint maker compares the checkpoints with the
    checkpoint store."""
    if row is None:
        return None
    try:
        return checkpoint.read(row.note, origin, publics)
    except ValueError:
        return None


def _upto(at: Checkpoint | None, nodes: dict[Node, bytes]) -> dict[Node, bytes]:
    size = 0 if at is None else at.size
    return {node: nodes[node] for node in nodes if (node.place + 1) << node.level <= size}
