"""Proofs are made from what is stored, and given out only if they lead to the signed root."""

from __future__ import annotations

import pytest

from control_api.log.proofs import BrokenTree, IncompleteTree, NotCovered, prove_entry, prove_growth
from control_api.store.queries import tree_nodes
from policies.ground.errors import Conflict, NotFound
from policies.trail import checkpoint
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import tree_proofs
from tests.control_api.log.proving import PUBLICS, entries, sign
from tests.control_api.log.purging import aged, fill, purge
from tests.policies.trail.proofs.naive_proofs import naive_consistency, naive_path
from tests.policies.world import naive_root
from tests.support.open_store import OTHER, TENANT, OpenStore, decision

LOG = "sluice/epoch/default"


@pytest.mark.deep(stands_in="test_growth_and_entries_are_proven_up_to_the_last_one")
async def test_every_entry_is_proven_in_the_latest_checkpoint(world: OpenStore) -> None:
    await fill(world, 530)
    tree = await sign(world)
    rows = await entries(world)
    leaves = [leaf_hash(row.entry) for row in rows]
    for row in [*rows[:3], *rows[250:260], *rows[510:514], rows[-1]]:
        proven = await prove_entry(world.store, TENANT, row.eid, None, PUBLICS)
        assert (proven.seq, proven.entry) == (row.seq, row.entry)
        assert proven.hashes == naive_path(row.seq, leaves)
        at = checkpoint.read(proven.note, LOG, PUBLICS)
        assert (at.size, at.root) == (530, tree.root())
        assert tree_proofs.proves_inclusion(
            leaves[row.seq], row.seq, at.size, proven.hashes, at.root
        )
        assert proven.openings


async def test_growth_and_entries_are_proven_up_to_the_last_one(world: OpenStore) -> None:
    await fill(world, 300)
    first = await sign(world)
    await fill(world, 230, seed=2)
    second = await sign(world, first)
    rows = await entries(world)
    leaves = [leaf_hash(row.entry) for row in rows]
    for row in (rows[0], rows[-1]):
        entry = await prove_entry(world.store, TENANT, row.eid, None, PUBLICS)
        assert (entry.seq, entry.entry) == (row.seq, row.entry)
        assert entry.hashes == naive_path(row.seq, leaves)
    for old in (1, 2, 3, 128, 255, 256, 257, 300, 400, 512, 529, 530):
        proven = await prove_growth(world.store, TENANT, old, None, PUBLICS)
        assert (proven.old_size, proven.new_size) == (old, 530)
        assert proven.hashes == naive_consistency(old, leaves)
        root = naive_root(leaves[:old])
        assert tree_proofs.proves_consistency(old, root, 530, second.root(), proven.hashes)
    proven = await prove_growth(world.store, TENANT, 77, 300, PUBLICS)
    assert checkpoint.read(proven.note, LOG, PUBLICS).size == 300
    assert proven.hashes == naive_consistency(77, leaves[:300])
    assert (await prove_growth(world.store, TENANT, 0, None, PUBLICS)).hashes == []


async def test_an_entry_that_no_checkpoint_covers_is_not_proven(world: OpenStore) -> None:
    first = await world.log.append(TENANT, decision())
    with pytest.raises(NotCovered, match="entry 0 is not covered") as refused:
        await prove_entry(world.store, TENANT, first.eid, None, PUBLICS)
    assert refused.value.headers == {"Retry-After": "5"}
    with pytest.raises(NotCovered, match="no checkpoint yet"):
        await prove_growth(world.store, TENANT, 1, None, PUBLICS)
    tree = await sign(world)
    second = await world.log.append(TENANT, decision())
    await prove_entry(world.store, TENANT, first.eid, None, PUBLICS)
    with pytest.raises(NotCovered, match="entry 1 is not covered"):
        await prove_entry(world.store, TENANT, second.eid, None, PUBLICS)
    await sign(world, tree)
    proven = await prove_entry(world.store, TENANT, second.eid, None, PUBLICS)
    rows = await entries(world)
    assert (proven.seq, proven.entry) == (1, rows[1].entry)
    assert proven.hashes == naive_path(1, [leaf_hash(row.entry) for row in rows])
    assert proven.openings
    with pytest.raises(NotCovered, match="checkpoint of size 1 ends before entry 1"):
        await prove_entry(world.store, TENANT, second.eid, 1, PUBLICS)


async def test_an_unknown_event_or_checkpoint_is_not_found(world: OpenStore) -> None:
    made = await world.log.append(TENANT, decision())
    await sign(world)
    with pytest.raises(NotFound, match="no such event"):
        await prove_entry(world.store, TENANT, "no-such-event", None, PUBLICS)
    with pytest.raises(NotFound, match="no such event"):
        await prove_entry(world.store, OTHER, made.eid, None, PUBLICS)
    with pytest.raises(NotFound, match="no checkpoint of 7 entries"):
        await prove_entry(world.store, TENANT, made.eid, 7, PUBLICS)
    with pytest.raises(NotFound, match="no checkpoint of 7 entries"):
        await prove_growth(world.store, TENANT, 1, 7, PUBLICS)
    # Somebody holds a checkpoint that is larger than the log.
    with pytest.raises(Conflict, match="rolled back"):
        await prove_growth(world.store, TENANT, 2, None, PUBLICS)


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_node_repair.py::test_nodes_above_the_cut_are_restored_after_a_purge"
)
async def test_the_entries_left_by_a_purge_are_still_proven(
    world: OpenStore, small_steps: None
) -> None:
    await aged(world, 300, 250)
    early = await sign(world, size=100)
    early = await sign(world, early, size=256)
    before = await sign(world, early)
    rows = await entries(world)
    leaves = [leaf_hash(row.entry) for row in rows]
    assert (await purge(world).run(TENANT)).removed == 300
    after = await sign(world, before)
    leaves += [leaf_hash(row.entry) for row in await entries(world, len(leaves))]
    for at in (300, 301, 400, 511, 512, 549, 550):
        eid = (await entries(world, at))[0].eid
        for size in (None, 550) if at < 550 else (None,):
            proven = await prove_entry(world.store, TENANT, eid, size, PUBLICS)
            assert proven.hashes == naive_path(at, leaves[: size or 551])
    with pytest.raises(NotFound):
        await prove_entry(world.store, TENANT, rows[299].eid, None, PUBLICS)
    for old in (256, 300, 301, 512, 550, 551):
        growth = await prove_growth(world.store, TENANT, old, None, PUBLICS)
        root = naive_root(leaves[:old])
        assert tree_proofs.proves_consistency(old, root, 551, after.root(), growth.hashes)
    for old, nearest in ((100, "256"), (290, "256 and 300")):
        told = f"first 300 entries were purged.* sizes are {nearest}$"
        with pytest.raises(Conflict, match=told):
            await prove_growth(world.store, TENANT, old, None, PUBLICS)


async def test_missing_nodes_are_made_from_the_entries_within_a_bound(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world, 530)
    await sign(world, store_nodes=False)
    rows = await entries(world)
    for at in (0, 300, 529):
        await prove_entry(world.store, TENANT, rows[at].eid, None, PUBLICS)
    monkeypatch.setattr(tree_nodes, "MAX_ROWS", 300)
    with pytest.raises(IncompleteTree, match="more than 300 rows"):
        await prove_entry(world.store, TENANT, rows[0].eid, None, PUBLICS)


ALTERED = {
    # Nodes of the tree, one and all.
    "UPDATE tree_nodes SET hash = :wrong": True,
    "UPDATE log_entries SET hash = :wrong WHERE seq = 3": True,
    "DELETE FROM log_entries WHERE seq = 3": True,
    "UPDATE log_entries SET entry = :wrong WHERE seq = 2": False,
    "UPDATE checkpoints SET frontier = :frontier": True,
    "UPDATE checkpoints SET frontier = :wrong": True,
    "UPDATE checkpoints SET note = 'x'": True,
    "UPDATE checkpoints SET size = 531": True,
}
"""Each with whether it also concerns the growth from size 3."""


async def test_altered_rows_of_a_short_log_never_become_a_proof(world: OpenStore) -> None:
    await fill(world, 5)
    await sign(world)
    await refused(world, {each: ALTERED[each] for each in ALTERED if "tree_nodes" not in each})


@pytest.mark.deep(stands_in="test_altered_rows_of_a_short_log_never_become_a_proof")
async def test_altered_rows_never_become_a_proof(world: OpenStore) -> None:
    await fill(world, 530)
    await sign(world)
    await refused(world, ALTERED)


async def refused(world: OpenStore, altered: dict[str, bool]) -> None:
    [signed] = await world.rows("SELECT frontier FROM checkpoints")
    values = {"wrong": bytes(32), "frontier": bytes(len(signed.frontier))}
    event = (await entries(world))[2].eid
    for statement, growth in altered.items():
        table = next(
            name for name in ("tree_nodes", "log_entries", "checkpoints") if name in statement
        )
        await world.rows(f"CREATE TABLE kept AS SELECT * FROM {table}")
        used = {name: value for name, value in values.items() if f":{name}" in statement}
        await world.rows(statement, **used)
        with pytest.raises(BrokenTree):
            await prove_entry(world.store, TENANT, event, None, PUBLICS)
        if growth:
            with pytest.raises(BrokenTree):
                await prove_growth(world.store, TENANT, 3, None, PUBLICS)
        for undo in (
            f"DELETE FROM {table}",
            f"INSERT INTO {table} SELECT * FROM kept",
            "DROP TABLE kept",
        ):
            await world.rows(undo)
        await prove_entry(world.store, TENANT, event, None, PUBLICS)
