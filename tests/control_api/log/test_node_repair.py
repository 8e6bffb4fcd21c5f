"""Nodes of the tree that were lost or changed come back with the scheduled verification. The tree
is four wide here instead of 256, so that small logs have several levels of stored nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from control_api.log import proofs
from control_api.log.proofs import BrokenTree, IncompleteTree, prove_entry, prove_growth
from control_api.log.scheduled import asked_logs, node_repair, self_check
from control_api.log.scheduled.self_check import IDLE, SelfChecker
from control_api.store.queries import tree_nodes
from control_api.store.queries.leases import SelfCheck, self_checks
from policies.ground.errors import Conflict
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.proofs import nodes
from tests.control_api.log import purging
from tests.control_api.log.proving import PUBLICS, SIGNER, entries, sign
from tests.control_api.log.purging import DAY, aged, fill, purge
from tests.support import open_store as worlds
from tests.support.open_store import TENANT, OpenStore

SIZE = 70
WRONG = bytes(32)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch, small_steps: None) -> None:
    # What was decided without facts follows only if it is a denial.
    denied = partial(worlds.decision, "DENY")
    monkeypatch.setattr(purging, "decision", lambda verdict="", **asked: denied(**asked))
    monkeypatch.setattr(self_check, "ENTRIES", 20)
    monkeypatch.setattr(self_check, "PAUSE", 0.0)
    monkeypatch.setattr(self_check, "REST", 0.0)
    for module in (nodes, tree_nodes, node_repair, proofs):
        monkeypatch.setattr(module, "WIDTH", 4)
    for module in (nodes, tree_nodes):
        monkeypatch.setattr(module, "LEVELS", 2)
    monkeypatch.setattr(tree_nodes, "MAX_ROWS", 16)


async def stored(world: OpenStore) -> dict[tuple[int, int], Any]:
    rows = await world.rows("SELECT level, place, hash FROM tree_nodes WHERE tenant_id = 'default'")
    return {(row.level, row.place): bytes(row.hash) for row in rows}


async def step(world: OpenStore, checker: SelfChecker | None = None) -> tuple[SelfCheck, bool]:
    """One step, by default of a process that has just started."""
    state, more = await (checker or SelfChecker(world.store)).step(TENANT, PUBLICS)
    assert state is not None
    return state, more


async def whole(world: OpenStore, checker: SelfChecker | None = None) -> SelfCheck:
    state, more = await step(world, checker)
    while more:
        state, more = await step(world, checker)
    return state


async def proven(world: OpenStore) -> None:
    """Every kept entry is proven."""
    for row in await entries(world):
        await prove_entry(world.store, TENANT, row.eid, None, PUBLICS)


async def killed(*_: object) -> None:
    raise RuntimeError("killed")


async def test_lost_nodes_are_restored_whatever_the_size_of_the_log(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world, SIZE)
    await sign(world)
    kept, event = await stored(world), (await entries(world))[0].eid
    assert {level for level, _ in kept} == {1, 2, 3}
    assert (await whole(world)).finished_size == SIZE
    await world.rows("DELETE FROM tree_nodes")
    with pytest.raises(IncompleteTree, match=r"more than 16 rows.*scheduled verification makes"):
        await prove_entry(world.store, TENANT, event, None, PUBLICS)
    # No day has to pass, and each step is another process's. The first dies after it has written.
    world.now.ahead += IDLE
    with monkeypatch.context() as dying:
        dying.setattr(self_checks, "put", killed)
        with pytest.raises(RuntimeError, match="killed"):
            await step(world)
    assert await stored(world)
    world.now.ahead += asked_logs.LEASE
    assert (await step(world))[1]
    assert 0 < len(await stored(world)) < len(kept)
    state = await whole(world)
    assert (state.reason, await stored(world)) == (None, kept)
    await proven(world)


@pytest.mark.deep(stands_in="test_lost_nodes_are_restored_whatever_the_size_of_the_log")
async def test_a_process_killed_after_writing_nodes_loses_none(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world, SIZE)
    await sign(world)
    kept = await stored(world)
    await world.rows("DELETE FROM tree_nodes")
    with monkeypatch.context() as dying:
        dying.setattr(self_checks, "put", killed)
        with pytest.raises(RuntimeError, match="killed"):
            await step(world)
    assert await stored(world)
    world.now.ahead += asked_logs.LEASE
    await whole(world)
    assert await stored(world) == kept


@pytest.mark.deep(stands_in="test_wrong_nodes_are_replaced_only_by_those_of_a_signed_root")
@pytest.mark.parametrize("most", [65_536, 12], ids=["all held", "some held"])
async def test_forged_nodes_are_replaced_once_a_signed_root_is_passed(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(node_repair, "MAX_HELD", most)
    await fill(world, SIZE)
    await sign(world)
    kept, event = await stored(world), (await entries(world))[0].eid
    await world.rows("UPDATE tree_nodes SET hash = :wrong", wrong=WRONG)
    with pytest.raises(BrokenTree):
        await prove_entry(world.store, TENANT, event, None, PUBLICS)
    checker = SelfChecker(world.store)
    # The only signed root is the last step's.
    assert (await step(world, checker))[1]
    assert set((await stored(world)).values()) == {WRONG}
    rounds = 0
    while await stored(world) != kept:
        state, rounds = await whole(world, checker), rounds + 1
        # It is repaired, not told: proofs never trusted it.
        assert state.reason is None
        world.now.ahead += DAY
        assert rounds < 4
    assert (rounds == 1) == (most > len(kept))
    await proven(world)


async def test_wrong_nodes_are_replaced_only_by_those_of_a_signed_root(
    world: OpenStore,
) -> None:
    await fill(world, SIZE)
    tree = await sign(world)
    kept, event = await stored(world), (await entries(world))[0].eid
    [right] = await world.rows("SELECT note FROM checkpoints")
    forged = checkpoint.sign(Checkpoint("sluice/epoch/default", tree.size, WRONG), SIGNER)
    await world.rows("UPDATE checkpoints SET note = :note", note=forged)
    await world.rows("UPDATE tree_nodes SET hash = :wrong", wrong=WRONG)
    checker = SelfChecker(world.store)
    state = await whole(world, checker)
    assert (state.reason or "").startswith("root_mismatch: ")
    assert set((await stored(world)).values()) == {WRONG}
    # The root that was signed proves what the walk has found.
    await world.rows("UPDATE checkpoints SET note = :note", note=right.note)
    with pytest.raises(BrokenTree):
        await prove_entry(world.store, TENANT, event, None, PUBLICS)
    await whole(world, checker)
    world.now.ahead += DAY
    state = await whole(world, checker)
    # It is repaired, not told: proofs never trusted it.
    assert (state.reason, await stored(world)) == (None, kept)
    await prove_entry(world.store, TENANT, event, None, PUBLICS)


async def test_nodes_above_the_cut_are_restored_after_a_purge(world: OpenStore) -> None:
    await aged(world, 22, 7)
    checker = SelfChecker(world.store)
    assert (await step(world, checker))[1]
    await purge(world).run(TENANT)
    kept = await stored(world)
    cut = (await entries(world))[0].seq
    assert cut == 22
    for old in (20, 22, 23):
        await prove_growth(world.store, TENANT, old, None, PUBLICS)
    for old, nearest in ((3, "4"), (21, "20 and 22")):
        told = f"first 22 entries were purged.* sizes are {nearest}$"
        with pytest.raises(Conflict, match=told):
            await prove_growth(world.store, TENANT, old, None, PUBLICS)
    await world.rows("DELETE FROM tree_nodes")
    state = await whole(world, checker)
    # Those of purged entries can't be computed, and no proof reads them.
    above = {at: kept[at] for at in kept if (at[1] + 1) << 2 * at[0] > cut}
    assert (state.reason, await stored(world)) == (None, above)
    await proven(world)
