"""Erasure: the values go, with everything derived from them, and the log still verifies."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from control_api.log import erasure as erase_module
from control_api.log import read
from control_api.log.ingest import ingest
from control_api.log.verify import verify
from policies.ground.errors import Conflict
from tests.control_api.log.erasing import erase, hold, opened_seqs, release
from tests.control_api.log.purging import DAY, SIGNER, aged, keep_days, purge, seqs, valid
from tests.support.open_store import TENANT, OpenStore, Spool, action, decision, sql

SEED = "seeded-7f3a@person"
EVENTS, SPOOLED = 12, 4
ALL = EVENTS * 3 + SPOOLED
"""The person's events, two actions on each, and the events of a sidecar."""
OUTSIDE: dict[str, dict[str, bytes]] = {
    "UPDATE openings SET openings = :empty, user_id = NULL WHERE seq = :seq": {"empty": b"{}"},
    "DELETE FROM openings WHERE seq = :seq": {},
}
"""Erasures outside of the ledger, with their values."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, small_steps: None) -> None:
    """Steps of a few entries, and an index that holds most of a small log."""
    monkeypatch.setattr(erase_module, "FIRST_STEP", 5)
    monkeypatch.setattr(erase_module, "MAX_STEP", 5)
    monkeypatch.setattr(erase_module, "MIN_STEP", 5)


async def seeded(world: OpenStore) -> list[str]:
    """A log of many users, in which one person has events, lineage and a sidecar's records."""
    made = await asyncio.gather(
        *(
            world.log.append(TENANT, record)
            for number in range(EVENTS)
            for record in (
                decision(
                    user_id=SEED,
                    query=f"{SEED} {number}",
                    session_id=f"s-{number % 3}",
                    agent_id="agt_1" if number == EVENTS - 1 else None,
                ),
                *(decision(user_id=f"u-{at}", session_id="s-9") for at in range(5)),
            )
        )
    )
    events = made[::6]
    lineage = (action(each.eid, each.leaf_hash, at) for each in events for at in range(2))
    await asyncio.gather(*(world.log.append(TENANT, record) for record in lineage))
    spool = Spool(instance="seeded")
    payloads = [spool.record(decision(user_id=SEED)) for _ in range(SPOOLED)]
    await ingest(world.store, TENANT, spool.source, spool.instance, payloads)
    for at in range(3):
        await sql(
            world.url,
            "INSERT INTO sessions (tenant_id, session_id, agent_role, user_id, created_at, "
            "expires_at) VALUES (:t, :s, 'support', :u, 1, 2)",
            t=TENANT,
            s=f"s-{at}",
            u=SEED,
        )
    return [each.eid for each in events]


async def holding(world: OpenStore, value: str = SEED) -> dict[str, int]:
    """How many rows of each table hold the value in any column."""
    found = {}
    for table, columns in {
        "openings": ("user_id", "openings"),
        "log_index": ("value",),
        "sessions": ("user_id",),
        "holds": ("object_id",),
        "log_entries": ("entry",),
        "tallies": ("value",),
    }.items():
        rows = await world.rows(f"SELECT {', '.join(columns)} FROM {table}")
        found[table] = sum(
            value.encode() in (bytes(cell) if not isinstance(cell, str) else cell.encode())
            for row in rows
            for cell in row
            if cell is not None
        )
    return {table: count for table, count in found.items() if count}


async def redactions(world: OpenStore) -> list[dict[str, Any]]:
    rows = await world.rows(
        "SELECT entry FROM log_entries WHERE kind = 'redact' AND tenant_id = :t ORDER BY seq",
        t=TENANT,
    )
    return [orjson.loads(bytes(row.entry)) for row in rows]


async def test_a_user_is_erased_whole_and_once(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await seeded(world)
    before = await opened_seqs(world)
    # The agent's only event is the last one, several steps behind the first.
    for held in (("session", "s-2"), ("agent", "agt_1")):
        hold_id = await hold(world, *held)
        with pytest.raises(Conflict, match=hold_id) as refused:
            await erase(world, user_id=SEED)
        assert SEED not in refused.value.message
        assert await opened_seqs(world) == before
        await release(world, hold_id)
    # A session keeps its user until its last opening goes.
    some = [await erase(world, *each) for each in (ids[0:-3:3], ids[-3:-2])]
    assert [(each.entries, each.sessions) for each in some] == [(EVENTS - 3, 0), (3, 1)]
    with monkeypatch.context() as patch:
        patch.setattr(erase_module, "BUDGET", 10)
        first = await erase(world, user_id=SEED)
    assert (first.more, 0 < first.entries < ALL - EVENTS) == (True, True)
    done = await asyncio.gather(*(erase(world, user_id=SEED) for _ in range(3)))
    assert first.entries + sum(each.entries for each in done) == ALL - EVENTS
    assert await holding(world) == {}
    named = [
        seq
        for entry in await redactions(world)
        for first_seq, last_seq in entry["pub"]["events"]
        for seq in range(first_seq, last_seq + 1)
    ]
    assert sorted(named) == sorted(before - await opened_seqs(world))
    size = len(await seqs(world))
    again = await erase(world, user_id=SEED)
    assert (again.entries, again.sessions, again.seq) == (0, 0, None)
    assert len(await seqs(world)) == size
    await valid(world)


async def test_a_long_session_and_much_lineage_are_erased_in_several_requests(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.log.append(TENANT, decision(user_id=SEED))
    lineage = (action(made.eid, made.leaf_hash, number) for number in range(12))
    await asyncio.gather(*(world.log.append(TENANT, each) for each in lineage))
    assert (await erase(world, user_id=SEED)).entries == 13
    assert await opened_seqs(world) == set()
    monkeypatch.setattr(erase_module, "BUDGET", 10)
    records = [decision(user_id=f"u-{number}", session_id="s-1") for number in range(30)]
    await asyncio.gather(*(world.log.append(TENANT, record) for record in records))
    old = await world.log.append(TENANT, decision(user_id="old"))
    done = [await erase(world, session_id="s-1") for _ in range(4)]
    assert [each.more for each in done] == [True, True, True, False]
    assert sum(each.entries for each in done) == 30
    await valid(world)
    # What was erased can be purged, though the entry that says so stays.
    await keep_days(world, 1)
    world.now.ahead += 2 * DAY
    kept = await world.log.append(TENANT, decision(user_id="kept"))
    assert (await erase(world, old.eid)).entries == 1
    assert (await purge(world).run(TENANT)).removed == kept.seq
    await valid(world)
    # An erasure outside of the ledger is found, behind those that it excuses too.
    for statement, values in OUTSIDE.items():
        await sql(world.url, statement, seq=kept.seq, **values)
        answer = await verify(world.store, TENANT, (SIGNER.public,))
        assert (answer["valid"], answer["broken_at"]) == (False, kept.eid)
        assert answer["reason"].startswith("opening_missing: ")


@pytest.mark.deep(stands_in="test_a_user_is_erased_whole_and_once")
async def test_an_erased_user_is_in_no_row_and_the_log_verifies(world: OpenStore) -> None:
    await seeded(world)
    before = await opened_seqs(world)
    assert set(await holding(world)) == {"openings", "log_index", "sessions"}
    done = await erase(world, user_id=SEED)
    assert await holding(world) == {}
    gone = before - await opened_seqs(world)
    assert (done.entries, done.sessions, done.more) == (ALL, 3, False)
    named = [
        seq
        for entry in await redactions(world)
        for first, last in entry["pub"]["events"]
        for seq in range(first, last + 1)
    ]
    assert sorted(named) == sorted(gone)
    last = (await redactions(world))[-1]
    assert (last["seq"], last["pub"]["by"], last["pub"]["reason"]) == (
        done.seq,
        "key_1",
        "asked for",
    )
    await valid(world)
    page = await read.events(world.store, TENANT, read.EventFilters(user_id=SEED), 10)
    assert page.events == []


@pytest.mark.deep(stands_in="test_a_user_is_erased_whole_and_once")
async def test_an_erasure_can_be_repeated(world: OpenStore) -> None:
    await seeded(world)
    await erase(world, user_id=SEED)
    size = len(await seqs(world))
    done = await erase(world, user_id=SEED)
    assert (done.entries, done.sessions, done.seq) == (0, 0, None)
    assert len(await seqs(world)) == size


@pytest.mark.parametrize(
    ("object_type", "value"), [("session", "s-1"), ("agent", "agt_1"), ("user", SEED)]
)
async def test_lineage_is_held_with_the_event_it_belongs_to(
    world: OpenStore, object_type: str, value: str
) -> None:
    made = await world.log.append(
        TENANT, decision(user_id=SEED, session_id="s-1", agent_id="agt_1")
    )
    other = await world.log.append(TENANT, decision(user_id="u-2", session_id="s-2"))
    lineage = [
        (await world.log.append(TENANT, action(each.eid, each.leaf_hash, 1))).eid
        for each in (made, other)
    ]
    hold_id = await hold(world, object_type, value)
    before = await opened_seqs(world)
    with pytest.raises(Conflict, match=hold_id):
        await erase(world, *lineage)
    assert await opened_seqs(world) == before
    assert (await erase(world, lineage[1])).entries == 1
    await release(world, hold_id)
    assert (await erase(world, lineage[0])).entries == 1
    await valid(world)


@pytest.mark.deep(stands_in="test_a_user_is_erased_whole_and_once")
async def test_a_session_loses_its_user_with_its_last_opening(world: OpenStore) -> None:
    ids = await seeded(world)
    of_session = ids[0::3]
    done = await erase(world, *of_session[:-1])
    assert (done.entries, done.sessions) == ((len(of_session) - 1) * 3, 0)
    done = await erase(world, of_session[-1])
    assert (done.entries, done.sessions) == (3, 1)
    done = await erase(world, session_id="s-1")
    assert (done.entries, done.sessions) == (EVENTS // 3 * 3, 1)
    await valid(world)


@pytest.mark.deep(stands_in="test_a_long_session_and_much_lineage_are_erased_in_several_requests")
async def test_an_event_with_more_lineage_than_a_step_takes(world: OpenStore) -> None:
    made = await world.log.append(TENANT, decision(user_id=SEED))
    for number in range(12):
        await world.log.append(TENANT, action(made.eid, made.leaf_hash, number))
    assert (await erase(world, user_id=SEED)).entries == 13
    assert await opened_seqs(world) == set()
    await valid(world)


@pytest.mark.deep(stands_in="test_a_user_is_erased_whole_and_once")
async def test_a_budget_ends_a_request_that_another_continues(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seeded(world)
    monkeypatch.setattr(erase_module, "BUDGET", 10)
    first = await erase(world, user_id=SEED)
    assert first.more
    assert 0 < first.entries < ALL
    await valid(world)
    monkeypatch.setattr(erase_module, "BUDGET", 10_000)
    second = await erase(world, user_id=SEED)
    assert first.entries + second.entries == ALL
    assert await holding(world) == {}


@pytest.mark.deep(stands_in="test_a_long_session_and_much_lineage_are_erased_in_several_requests")
async def test_repeating_ends_for_a_session_larger_than_one_request(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A session's entries stay in the index after their erasure, and are found by each request.
    monkeypatch.setattr(erase_module, "BUDGET", 10)
    for number in range(30):
        await world.log.append(TENANT, decision(user_id=f"u-{number}", session_id="s-1"))
    done = [await erase(world, session_id="s-1") for _ in range(4)]
    assert sum(each.entries for each in done) == 30
    assert [each.more for each in done] == [True, True, True, False]
    await valid(world)


@pytest.mark.deep(stands_in="test_a_user_is_erased_whole_and_once")
async def test_two_replicas_erase_each_opening_once(world: OpenStore) -> None:
    await seeded(world)
    done = await asyncio.gather(*(erase(world, user_id=SEED) for _ in range(3)))
    assert sum(each.entries for each in done) == ALL
    named = [
        seq
        for entry in await redactions(world)
        for first, last in entry["pub"]["events"]
        for seq in range(first, last + 1)
    ]
    assert len(named) == len(set(named)) == ALL
    await valid(world)


@pytest.mark.deep(stands_in="test_a_long_session_and_much_lineage_are_erased_in_several_requests")
@pytest.mark.parametrize("statement", OUTSIDE)
async def test_an_erasure_outside_of_the_ledger_is_found(world: OpenStore, statement: str) -> None:
    await seeded(world)
    await erase(world, session_id="s-0")
    left = sorted(await opened_seqs(world))
    [eid] = await world.rows(
        "SELECT eid FROM log_entries WHERE seq = :seq AND tenant_id = :t", seq=left[3], t=TENANT
    )
    await sql(world.url, statement, seq=left[3], **OUTSIDE[statement])
    answer = await verify(world.store, TENANT)
    assert not answer["valid"]
    assert answer["broken_at"] == eid.eid
    assert answer["reason"].startswith("opening_missing: ")


async def test_a_redaction_forged_by_sql_does_not_hide_the_loss(world: OpenStore) -> None:
    for session_id in ("s-1", "s-0", "s-0"):
        await world.log.append(TENANT, decision(session_id=session_id))
    await erase(world, session_id="s-0")
    [entry, *_] = await redactions(world)
    lost = min(await opened_seqs(world))
    await sql(world.url, "DELETE FROM openings WHERE seq = :seq", seq=lost)
    entry["pub"]["events"] = [[lost, lost], *entry["pub"]["events"]]
    await sql(
        world.url,
        "UPDATE log_entries SET entry = :raw WHERE seq = :seq AND tenant_id = :t",
        raw=orjson.dumps(entry, option=orjson.OPT_SORT_KEYS),
        seq=entry["seq"],
        t=TENANT,
    )
    assert not (await verify(world.store, TENANT))["valid"]


@pytest.mark.deep(stands_in="test_a_long_session_and_much_lineage_are_erased_in_several_requests")
async def test_a_log_with_erased_entries_can_be_purged(world: OpenStore) -> None:
    await aged(world, 20, 10)
    [old] = await world.rows(
        "SELECT eid FROM log_entries WHERE kind = 'decision' AND tenant_id = :t "
        "ORDER BY seq LIMIT 1",
        t=TENANT,
    )
    # The entry is in the part to purge; its `redact` entry is in the part that stays.
    assert (await erase(world, old.eid)).entries
    outcome = await purge(world).run(TENANT)
    assert outcome.removed == 20
    assert (await verify(world.store, TENANT, (SIGNER.public,)))["valid"]


@pytest.mark.deep(stands_in="test_a_user_is_erased_whole_and_once")
@pytest.mark.parametrize(
    ("object_type", "object_id"), [("session", "s-1"), ("agent", "agt_1"), ("user", SEED)]
)
async def test_a_hold_refuses_all_of_an_erasure(
    world: OpenStore, object_type: str, object_id: str
) -> None:
    await seeded(world)
    await world.log.append(TENANT, decision(user_id=SEED, agent_id="agt_1", session_id="s-1"))
    hold_id = await hold(world, object_type, object_id)
    before = await opened_seqs(world)
    for target in ({"user_id": SEED}, {"session_id": "s-1"}):
        with pytest.raises(Conflict, match=hold_id) as refused:
            await erase(world, **target)
        assert SEED not in refused.value.message
    assert await opened_seqs(world) == before
    await release(world, hold_id)
    assert (await erase(world, user_id=SEED)).entries
    # The released hold no longer names the user.
    assert await holding(world) == {}


async def test_a_hold_placed_during_an_erasure_stops_it(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seeded(world)
    append = world.store.write
    placed: list[str] = []

    async def then_hold(tenant_id: str, work: Any) -> Any:
        done = await append(tenant_id, work)
        if not placed:
            placed.append("")
            placed[0] = await hold(world, "user", SEED)
        return done

    monkeypatch.setattr(world.store, "write", then_hold)
    with pytest.raises(Conflict, match="were erased before"):
        await erase(world, user_id=SEED)
    await valid(world)
