"""Checkpointed logs, for the tests of proofs: the tree's nodes and a checkpoint are stored as the
service does after it has read the entries back."""

from __future__ import annotations

from typing import Any

from control_api.store.queries import checkpoints, tree_nodes
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.transaction import Transaction
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs.nodes import WideTree
from tests.support.open_store import TENANT, OpenStore

SIGNER = Signer(bytes(range(32)))
PUBLICS = (SIGNER.public,)


async def entries(world: OpenStore, first: int = 0) -> list[Any]:
    """The rows of the log from `first` on: seq, eid, entry."""
    query = "SELECT seq, eid, entry FROM log_entries WHERE tenant_id = :tenant AND seq >= :first"
    return await world.rows(query + " ORDER BY seq", tenant=TENANT, first=first)


async def sign(
    world: OpenStore,
    before: Frontier | None = None,
    size: int | None = None,
    origin: str | None = None,
    store_nodes: bool = True,
) -> Frontier:
    """Signs the log at its end, or at `size`, continuing the tree of the checkpoint before; returns
    its tree."""
    (head,) = await world.rows("SELECT log FROM log_heads WHERE tenant_id = :tenant", tenant=TENANT)
    first = 0 if before is None else before.size
    rows = await entries(world, first)
    tree = WideTree(before or Frontier())
    nodes = list(tree.append_all(leaf_hash(row.entry) for row in rows[: (size or 10**9) - first]))
    at = tree.frontier()
    name = origin or head.log
    note = checkpoint.sign(Checkpoint(name, at.size, at.root()), SIGNER)
    made = StoredCheckpoint(name, at.size, at.root(), at.to_bytes(), note, world.now())

    async def work(tx: Transaction) -> None:
        if store_nodes:
            await tree_nodes.extend(tx.connection, tx.tenant_id, nodes)
        await checkpoints.add(tx.connection, tx.tenant_id, made)

    await world.store.write(TENANT, work)
    return at
