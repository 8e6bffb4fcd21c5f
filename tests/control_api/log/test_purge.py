"""A purge removes a prefix, and the rest still verifies: at any cut, after a crash at any point,
and while others write, read and verify."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from sqlalchemy import update

from control_api.log import purge as purge_module
from control_api.log import read
from control_api.log.append import Log
from control_api.log.ingest import ingest
from control_api.log.purge import Purge, PurgeResult
from control_api.log.purge_plan import PurgeMismatch, prove
from control_api.log.search import EventFilters
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from control_api.store.queries import purges
from control_api.store.schema.tables import tenants
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound
from policies.ground.signing import KeyRing, Signer
from tests.control_api.store.counters.test_counters import anything, kept, walked
from tests.control_api.store.world import (
    OTHER,
    TENANT,
    Spool,
    World,
    action,
    decision,
    event_id,
    opened,
    sql,
)

DAY = 86_400_000_000
SIGNER = Signer(bytes(range(32)))
ENDLESS = ("second", "minute", "agent", "agent_source", "mismatch_second", "mismatch_minute")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes cuts divide blocks of the index, and removals take many steps."""
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    monkeypatch.setattr(purge_module, "FIRST", 7)
    monkeypatch.setattr(purge_module, "MOST", 16)


def purge(world: World) -> Purge:
    return Purge(world.store, KeyRing(SIGNER), event_id)


async def keep_days(world: World, days: int) -> None:
    async def work(tx: Transaction) -> None:
        row = update(tenants).where(tenants.c.tenant_id == tx.tenant_id)
        await tx.connection.execute(row.values(retention_days=days))

    await world.store.write(TENANT, work)


async def fill(world: World, count: int, seed: int = 1) -> None:
    """Appends decisions of the service and of a sidecar, and lineage actions, all of now."""
    chance = random.Random(seed)
    spool = Spool(instance=f"i{seed}-{world.now.ahead}")
    done = 0
    while done < count:
        many = min(chance.randint(1, 9), count - done)
        if chance.random() < 0.3:
            payloads = [spool.record(decision(**anything(chance))) for _ in range(many)]
            await ingest(world.store, TENANT, spool.source, spool.instance, payloads)
        else:
            made = await asyncio.gather(
                *(world.log.append(TENANT, decision(**anything(chance))) for _ in range(many - 1))
            )
            event = made[0] if made else await world.log.append(TENANT, decision())
            if made:
                await world.log.append(TENANT, action(event.eid, event.leaf_hash, done))
        done += many


async def aged(world: World, old: int, young: int, days: int = 2) -> None:
    """A log whose first `old` entries are older than the retention of a day."""
    await keep_days(world, 1)
    await fill(world, old)
    world.now.ahead += days * DAY
    await fill(world, young, seed=2)


async def valid(world: World) -> dict[str, Any]:
    answer = await verify(world.store, TENANT, (SIGNER.public,))
    assert answer["valid"], answer["reason"]
    return answer


async def seqs(world: World) -> list[int]:
    query = "SELECT seq FROM log_entries WHERE tenant_id = :tenant ORDER BY seq"
    return [row.seq for row in await world.rows(query, tenant=TENANT)]


async def test_old_entries_go_and_the_rest_verifies(world: World) -> None:
    await aged(world, 100, 50)
    before = await world.rows("SELECT seq, entry, hash FROM log_entries ORDER BY seq")
    assert (await valid(world))["anchor"] is None
    outcome = await purge(world).run(TENANT)
    assert outcome.removed == 100
    assert await seqs(world) == list(range(100, 151))
    after = await world.rows("SELECT seq, entry, hash FROM log_entries WHERE seq < 150")
    assert {tuple(row) for row in after} == {tuple(row) for row in before if row.seq >= 100}
    answer = await valid(world)
    assert (answer["total"], answer["first_seq"], answer["last_seq"]) == (51, 100, 150)
    anchor = answer["anchor"]
    assert anchor["last_seq"] == 99
    assert anchor["last_hash"] == before[99].hash.hex()
    assert (anchor["tree_size"], anchor["purged_count"]) == (100, 100)
    assert answer["checkpoint"]["size"] == 151
    assert answer["checkpoint"]["note"].startswith("sluice/epoch/default\n151\n")


async def test_all_other_rows_of_an_entry_go_with_it(world: World) -> None:
    await aged(world, 100, 150)
    await purge(world).run(TENANT)
    for table in ("openings", "log_index"):
        assert await world.rows(f"SELECT seq FROM {table} WHERE seq < 100") == []
    assert await world.rows("SELECT seq FROM log_spans WHERE until_seq <= 100") == []
    assert await world.rows("SELECT seq FROM log_spans WHERE until_seq > 100") != []


async def test_the_counts_match_the_entries_that_are_left(world: World) -> None:
    await aged(world, 120, 60)
    await purge(world).run(TENANT)
    forgotten = {3, 4, 6, 7, 8, 9}  # time buckets expire by age

    def of_all_time(counts: dict[tuple[int, str, int], list[int]]) -> dict[Any, Any]:
        return {key: row[:2] for key, row in counts.items() if key[0] not in forgotten}

    assert of_all_time(await kept(world)) == of_all_time(await walked(world))


async def test_entries_that_are_young_or_kept_for_good_stay(world: World) -> None:
    await keep_days(world, 3)
    await fill(world, 40)
    world.now.ahead += 2 * DAY
    assert await purge(world).run(TENANT) == PurgeResult(0, None)
    world.now.ahead += 20 * DAY
    await keep_days(world, 0)
    assert await purge(world).run(TENANT) == PurgeResult(0, None)
    assert await seqs(world) == list(range(40))


async def test_an_empty_log_is_not_purged(world: World) -> None:
    assert await purge(world).run(OTHER) == PurgeResult(0, None)


async def test_an_idle_log_does_not_purge_its_own_purges_for_ever(world: World) -> None:
    await aged(world, 30, 0)
    sizes = []
    for _ in range(6):
        await purge(world).run(TENANT)
        await valid(world)
        sizes.append((await seqs(world))[-1])
        world.now.ahead += 2 * DAY
    assert sizes == [30] * 6
    assert await seqs(world) == [30]


@pytest.mark.parametrize("seed", range(4))
async def test_purges_at_any_cut_leave_a_valid_log(either_url: str, seed: int) -> None:
    chance = random.Random(seed)
    async with opened(either_url) as world:
        await keep_days(world, 1)
        old, answer = 0, await valid(world)
        for round_ in range(5):
            young = chance.choice([1, 2, 31, 32, 33, 64, 77])
            await fill(world, young, seed=seed * 10 + round_)
            outcome = await purge(world).run(TENANT)
            answer = await valid(world)
            assert answer["last_seq"] == (await seqs(world))[-1]
            if outcome.anchor is not None:
                assert answer["first_seq"] == outcome.anchor.purged.size >= old
                old = outcome.anchor.purged.size
            await Log.open(world.store)
            world.now.ahead += chance.choice([DAY // 2, DAY + 1, 3 * DAY])
        assert old > 0
        shown = await read.events(world.store, TENANT, EventFilters(), 1000)
        assert shown.events
        for name in ("agent_role", "session_id", "user_id"):
            for value in {each[name] for each in shown.events if each[name]}:
                found = await read.events(world.store, TENANT, EventFilters(**{name: value}), 1000)
                meant = [each["seq"] for each in shown.events if each[name] == value]
                assert [each["seq"] for each in found.events] == meant


CRASHES = ("prove", "commit", "cover", "covered", "remove", "removed")


class Died(Exception):
    """Simulates the death of the process."""


@pytest.mark.parametrize("point", CRASHES)
async def test_a_crash_at(either_url: str, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    async with opened(either_url) as world:
        await aged(world, 90, 40)
        with monkeypatch.context() as patch:
            _die_at(patch, point)
            with pytest.raises(Died):
                await purge(world).run(TENANT)
        answer = await valid(world)
        committed = point not in {"prove", "commit"}
        assert (answer["anchor"] is not None) == committed
        assert answer["total"] == (41 if committed else 130)
        shown = await read.events(world.store, TENANT, EventFilters(), 1000)
        assert (min(each["seq"] for each in shown.events) >= 90) == committed
    async with opened(either_url) as world:  # the service starts on it
        world.now.ahead += 2 * DAY
        await purge(world).run(TENANT)
        assert (await seqs(world)) == list(range(90, 131))
        assert (await valid(world))["anchor"]["purged_count"] == 90


def _die_at(patch: pytest.MonkeyPatch, point: str) -> None:
    """Dies before the step `prove`, `commit`, `cover` or `remove`, after the note is stored, or
    after some rows are removed."""

    async def dead(*_: Any) -> Any:
        raise Died

    steps = {"commit": "_commit", "cover": "_cover", "covered": "_remove", "remove": "_remove_step"}
    if point == "prove":
        patch.setattr(purge_module, "prove", dead)
    elif point in steps:
        patch.setattr(Purge, steps[point], dead)
    else:
        real, left = Purge._remove_step, [3]

        async def some(self: Purge, *asked: Any) -> Any:
            if not left[0]:
                raise Died
            left[0] -= 1
            return await real(self, *asked)

        patch.setattr(Purge, "_remove_step", some)


async def test_a_commit_that_fails_has_changed_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aged(world, 30, 10)

    async def failing(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(purges, "add", failing)
        with pytest.raises(Died):
            await purge(world).run(TENANT)
    assert (await valid(world))["total"] == 40
    assert await world.rows("SELECT * FROM purges") == []


async def test_two_concurrent_replicas_make_one_purge(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        await aged(world, 120, 40)
        other.now.ahead = world.now.ahead
        outcomes = await asyncio.gather(
            *(purge(each).run(TENANT) for each in (world, other, world, other))
        )
        assert sum(outcome.removed for outcome in outcomes) == 120
        assert await seqs(world) == list(range(120, 161))
        await valid(world)


async def test_a_longer_retention_set_meanwhile_stops_the_purge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await aged(world, 40, 10)
    real = prove

    async def slow(*asked: Any) -> Any:
        due = await real(*asked)
        await keep_days(world, 365)
        return due

    monkeypatch.setattr(purge_module, "prove", slow)
    assert await purge(world).run(TENANT) == PurgeResult(0, None)
    assert await seqs(world) == list(range(50))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log_entries SET agent_role = 'other' WHERE seq = 8",
        "UPDATE log_entries SET ts = ts + 1 WHERE seq = 8",
        "UPDATE openings SET user_id = 'other' WHERE seq = (SELECT min(seq) FROM openings)",
        "DELETE FROM log_entries WHERE seq = 8",
        "DELETE FROM log_entries WHERE seq = 0",
        "DELETE FROM log_entries WHERE seq = 39",
        "UPDATE log_entries SET entry = '{}' WHERE seq = 40",
    ],
)
async def test_an_invalid_prefix_is_not_removed(either_url: str, statement: str) -> None:
    async with opened(either_url) as world:
        await aged(world, 40, 10)
        await sql(either_url, statement)
        left = await seqs(world)
        with pytest.raises(PurgeMismatch):
            await purge(world).run(TENANT)
        assert await seqs(world) == left
        assert await world.rows("SELECT * FROM purges") == []


TAMPERED = {
    "size": "UPDATE purges SET tree_size = tree_size + 1",
    "root": "UPDATE purges SET root_hash = :zero",
    "frontier": "UPDATE purges SET frontier = :zero",
    "last leaf": "UPDATE purges SET last_hash = :zero",
    "cutoff": "UPDATE purges SET purged_before = purged_before + 1",
    "count": "UPDATE purges SET purged_count = purged_count - 1",
    "time": "UPDATE purges SET purged_at = purged_at + 1",
    "place": "UPDATE purges SET seq = seq - 1",
    "anchor note": "UPDATE purges SET anchor_note = cover_note",
    "cover note": "UPDATE purges SET cover_note = anchor_note",
    "no cover note": "UPDATE purges SET cover_note = NULL, finished_at = NULL",
    "gone": "DELETE FROM purges",
    "more rows gone": "DELETE FROM log_entries WHERE seq < 70",
    "more rows gone, and the row edited": (
        "UPDATE purges SET tree_size = tree_size + 1, purged_count = purged_count + 1"
    ),
    "a purged row is back": (
        "INSERT INTO log_entries SELECT tenant_id, 3, 'back', kind, ts, agent_role, agent_id, "
        "source_id, decision, policy_name, session_id, ref, entry, hash FROM log_entries "
        "WHERE seq = 70"
    ),
    "a purged opening is back": (
        "INSERT INTO openings (tenant_id, seq, user_id, openings) VALUES ('default', 3, 'x', :zero)"
    ),
    "the purge entry is another": "UPDATE log_entries SET entry = :zero WHERE kind = 'purge'",
    "a span": "UPDATE log_spans SET last_ts = 0 WHERE seq = (SELECT min(seq) FROM log_spans)",
}


@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED.keys())
async def test_a_change_of_what_a_purge_left_is_found(either_url: str, statement: str) -> None:
    async with opened(either_url) as world:
        await aged(world, 60, 90)
        await purge(world).run(TENANT)
        await valid(world)
        values = {"zero": b"\0" * 32} if ":zero" in statement else {}
        await sql(either_url, statement, **values)
        answer = await verify(world.store, TENANT, (SIGNER.public,))
        assert not answer["valid"]
        assert answer["broken_at"] is not None
        assert answer["reason"]


async def test_the_oldest_rows_deleted_as_if_by_retention_are_found(world: World) -> None:
    """With an anchor that is right in everything, but signed by another key."""
    await aged(world, 60, 30)
    await Purge(world.store, KeyRing(Signer(b"\1" * 32)), event_id).run(TENANT)
    answer = await verify(world.store, TENANT, (SIGNER.public,))
    assert not answer["valid"]
    assert "not signed by the log's key" in answer["reason"]
    assert answer["anchor"] is None
    answer = await verify(world.store, TENANT)
    assert not answer["valid"]


async def test_an_event_below_the_cut_is_hidden_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows still exist, but no reader sees half a purge."""
    await aged(world, 60, 30)
    shown = await read.events(world.store, TENANT, EventFilters(), 1000)
    old = [each["event_id"] for each in shown.events if each["seq"] < 60]
    with monkeypatch.context() as patch:
        _die_at(patch, "removed")
        with pytest.raises(Died):
            await purge(world).run(TENANT)
    assert len(await seqs(world)) > 31
    for filters in (
        EventFilters(),
        EventFilters(decision="ALLOW"),
        EventFilters(since=0),
        EventFilters(user_id="u-1"),
    ):
        found = await read.events(world.store, TENANT, filters, 1000)
        assert found.events
        assert {each["seq"] < 60 for each in found.events} == {False}
    for eid in old[-3:]:
        with pytest.raises(NotFound):
            await read.event(world.store, TENANT, eid)


async def test_verification_succeeds_while_rows_are_removed_and_added(world: World) -> None:
    await aged(world, 400, 200)
    going = True

    async def write() -> None:
        while going:
            await world.log.append(TENANT, decision())

    writers = [asyncio.ensure_future(write()) for _ in range(4)]
    work = asyncio.ensure_future(purge(world).run(TENANT))
    walks = 0
    while not work.done():
        await valid(world)
        walks += 1
    going = False
    await asyncio.gather(*writers)
    assert (await work).removed == 400
    assert walks > 1
    answer = await valid(world)
    assert answer["first_seq"] == 400
    assert answer["total"] == (await seqs(world))[-1] + 1 - 400
