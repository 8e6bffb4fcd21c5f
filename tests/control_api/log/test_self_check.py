"""The scheduled verification: incremental, continued by others, and it notices a repair."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from control_api.log.ingest import ingest
from control_api.log.scan import scan
from control_api.log.scheduled import self_check
from control_api.log.scheduled.self_check import SelfChecker
from control_api.store.queries.leases import SelfCheck
from policies.trail.change import change_record
from tests.control_api.log import purging
from tests.control_api.log.erasing import erase
from tests.control_api.log.purging import DAY, SIGNER, aged, fill, purge
from tests.policies.world import decided
from tests.support import open_store as worlds
from tests.support.open_store import TENANT, OpenStore, sql

# What was decided without facts follows only if it is a denial.
decision = partial(worlds.decision, "DENY")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, small_steps: None) -> None:
    monkeypatch.setattr(purging, "decision", lambda verdict="", **asked: decision(**asked))
    monkeypatch.setattr(self_check, "ENTRIES", 20)
    monkeypatch.setattr(self_check, "PAUSE", 0.0)


async def whole(world: OpenStore, checker: SelfChecker | None = None) -> SelfCheck:
    """Steps until none is left. By default each is another process's."""
    for _ in range(50):
        state, more = await (checker or SelfChecker(world.store)).step(TENANT, (SIGNER.public,))
        if not more:
            assert state is not None
            return state
    raise AssertionError("the verification does not end")


async def size(world: OpenStore) -> int:
    [row] = await world.rows("SELECT size FROM log_heads WHERE tenant_id = :t", t=TENANT)
    return int(row.size)


async def test_a_verification_passes_over_entries_erased_and_purged_behind_it(
    world: OpenStore,
) -> None:
    """What is erased was passed by the step before the one that comes to the erasure."""
    checker = SelfChecker(world.store)
    await aged(world, 8, 20)
    query = "SELECT eid FROM log_entries WHERE kind = 'decision' AND seq >= 8 ORDER BY seq LIMIT 1"
    [passed] = await world.rows(query)
    await erase(world, passed.eid)
    state = await whole(world, checker)
    assert (state.reason, state.finished_size) == (None, await size(world))
    await purge(world).run(TENANT)
    await world.log.append(TENANT, decision())
    # By the process that had walked from the first entry, and by a new one each step.
    for each in (checker, None):
        state = await whole(world, each)
        assert (state.reason, state.finished_size) == (None, await size(world))
        world.now.ahead += DAY


@pytest.mark.deep(stands_in="test_a_verification_passes_over_entries_erased_and_purged_behind_it")
@pytest.mark.parametrize("same", [True, False], ids=["one process", "a new one each step"])
async def test_a_verification_follows_a_growing_purged_and_erased_log(
    world: OpenStore, same: bool
) -> None:
    checker = SelfChecker(world.store) if same else None
    await aged(world, 30, 25)
    for _ in range(2):
        state = await whole(world, checker)
        assert (state.reason, state.finished_size) == (None, await size(world))
        made = await world.log.append(TENANT, decision())
        await erase(world, made.eid)
    await purge(world).run(TENANT)
    await fill(world, 30, seed=3)
    state = await whole(world, checker)
    assert (state.reason, state.finished_size) == (None, await size(world))


@pytest.mark.deep(stands_in="test_removed_rows_are_found_and_their_return_noticed")
async def test_a_damaged_row_is_found_and_its_repair_noticed(world: OpenStore) -> None:
    await fill(world, 50)
    assert (await whole(world)).reason is None
    # What this round has passed is found by the next, a day later; what is new, at once.
    where = "WHERE tenant_id = :t AND seq = :seq"
    for seq, later in ((7, DAY), (await size(world), 0)):
        if not later:
            await world.log.append(TENANT, decision())
        [row] = await world.rows(f"SELECT hash FROM log_entries {where}", t=TENANT, seq=seq)
        spoiled = f"UPDATE log_entries SET hash = :h {where}"
        await sql(world.url, spoiled, t=TENANT, seq=seq, h=bytes(32))
        world.now.ahead += later
        for _ in range(2):
            state = await whole(world)
            assert state.reason is not None
            assert state.reason.startswith(f"hash_mismatch: seq {seq}")
        await sql(world.url, spoiled, t=TENANT, seq=seq, h=bytes(row.hash))
        state = await whole(world)
        assert (state.reason, state.finished_size) == (None, await size(world))


async def test_a_round_begins_though_entries_arrive_all_the_time(world: OpenStore) -> None:
    await fill(world, 30)
    first = state = await whole(world)
    for _ in range(2):
        world.now.ahead += DAY // 2
        await world.log.append(TENANT, decision())
        state = await whole(world)
    assert state.started_at >= first.started_at + DAY
    assert (state.reason, state.finished_size) == (None, await size(world))
    # One that was changed by hand is not trusted: all is verified from the start.
    await world.log.append(TENANT, decision())
    await sql(world.url, "UPDATE self_checks SET frontier = :f", f=b"x")
    state = await whole(world)
    assert (state.reason, state.finished_size) == (None, await size(world))


@pytest.mark.parametrize("column", ["started_at", "finished_at", "leased_until"])
async def test_a_finish_time_in_the_future_stops_no_verification(
    world: OpenStore, column: str
) -> None:
    """A clock ran ahead for a while, or the database's owner wants the verification to rest."""
    await fill(world, 30)
    await whole(world)
    await sql(world.url, "UPDATE log_entries SET hash = :h WHERE seq = 3", h=bytes(32))
    ahead = world.now() + 400 * DAY
    await sql(world.url, f"UPDATE self_checks SET {column} = :t", t=ahead)
    world.now.ahead += 2 * DAY
    assert (await whole(world)).broken_at is not None


async def test_removed_rows_are_found_and_their_return_noticed(world: OpenStore) -> None:
    await fill(world, 30)
    last = await size(world) - 1
    await sql(world.url, "CREATE TABLE kept AS SELECT * FROM log_entries WHERE seq = :s", s=last)
    await sql(world.url, "DELETE FROM log_entries WHERE seq = :seq", seq=last)
    state = await whole(world)
    assert (state.reason or "").startswith("entries_missing: ")
    await sql(world.url, "INSERT INTO log_entries SELECT * FROM kept")
    state = await whole(world)
    assert (state.reason, state.finished_size) == (None, last + 1)
    # A damaged one that this round has passed is found by the next, a day later.
    [row] = await world.rows("SELECT hash FROM log_entries WHERE seq = 7")
    for damaged, reason in ((bytes(32), "hash_mismatch: seq 7"), (bytes(row.hash), "")):
        await sql(world.url, "UPDATE log_entries SET hash = :h WHERE seq = 7", h=damaged)
        world.now.ahead += DAY
        state = await whole(world)
        assert (state.reason or "").startswith(reason)
        assert bool(state.reason) == bool(reason)
    # An erasure that no entry tells of.
    await sql(world.url, "DELETE FROM openings")
    world.now.ahead += DAY
    state = await whole(world)
    assert (state.reason or "").startswith("opening_missing: ")


async def test_a_missing_document_is_reported_unless_retention_removed_it(world: OpenStore) -> None:
    """To delete the document that a rewritten verdict contradicts leaves nothing to derive."""
    await aged(world, 8, 20)
    await purge(world).run(TENANT)
    [anchor] = await world.rows("SELECT purged_before FROM purges")
    spool = worlds.Spool(instance="late")
    late, early = anchor.purged_before - 1, anchor.purged_before + 1
    await ingest(world.store, TENANT, spool.source, "late", [spool.record(decided(), late)])
    assert (await whole(world)).reason is None
    world.now.ahead += DAY // 100
    await ingest(world.store, TENANT, spool.source, "late", [spool.record(decided(seed=1), early)])
    state = await whole(world)
    assert (state.reason or "").startswith("document_missing: seq ")
    assert (state.broken_at, state.finished_size) == ("event-1", await size(world))


async def test_a_document_that_an_older_version_replaced_may_be_missing(world: OpenStore) -> None:
    """Versions up to 0.1 kept no documents, and recorded changes without digests."""
    await fill(world, 10)
    await world.log.append(TENANT, decided())
    assert ((await whole(world)).reason or "").startswith("document_missing: seq ")
    await world.log.append(TENANT, change_record("policy.updated", "p", "k", {}, record_id="c"))
    world.now.ahead += 2 * DAY
    assert (await whole(world)).reason is None
    await world.log.append(TENANT, decided(seed=1))
    state = await whole(world)
    assert (state.broken_at, (state.reason or "").partition(":")[0]) == (
        "event-1",
        "document_missing",
    )


async def test_only_one_process_at_a_time_verifies_a_log(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world, 30)
    verified = 0

    async def counted(*given: object) -> object:
        nonlocal verified
        verified += 1
        await asyncio.sleep(0.05)
        return await scan(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(self_check, "scan", counted)
    checkers = [SelfChecker(world.store) for _ in range(3)]
    await asyncio.gather(*(each.step(TENANT, (SIGNER.public,)) for each in checkers))
    assert verified == 1
    # One that is stopped in its step keeps no other from the log.
    stopped = asyncio.create_task(checkers[0].step(TENANT, (SIGNER.public,)))
    while verified == 1:
        await asyncio.sleep(0.01)
    stopped.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    assert stopped.cancelled()
    _, more = await checkers[1].step(TENANT, (SIGNER.public,))
    assert (verified, more) == (3, False)
