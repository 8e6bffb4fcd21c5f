"""The counts kept with the log equal those of a scan over the log."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection

from control_api.log.ingest import ingest
from control_api.store.counters import queries as tallies
from control_api.store.counters.counters import (
    BUCKETS,
    DAY,
    HOUR,
    SEPARATOR,
    BatchCounts,
    Dimension,
    drop_expired,
)
from control_api.store.log.chain import LogChain
from control_api.store.transaction import Transaction
from policies.trail.entry import index_of
from tests.support.open_store import OTHER, TENANT, OpenStore, Spool, decision

ROLES, SOURCES = ("support", "loans"), ("handbook", "contracts", "payroll")
AGENTS, SESSIONS = (None, "a1", "a%", "a1x"), (None, "s1", "s2")


def anything(chance: random.Random) -> dict[str, Any]:
    verdict = chance.choice(("ALLOW", "DENY"))
    mismatch = verdict == "DENY" and chance.random() < 0.3
    return {
        "verdict": verdict,
        "policy_name": "session_agent_mismatch" if mismatch else "p",
        "agent_role": chance.choice(ROLES),
        "source_id": chance.choice(SOURCES),
        "agent_id": chance.choice(AGENTS),
        "session_id": chance.choice(SESSIONS),
        "source_type": chance.choice(("api", "sdk")),
    }


async def walked(world: OpenStore) -> dict[tuple[int, str, int], list[int]]:
    """The same counts, from a scan over the entries."""
    query = "SELECT kind, entry FROM log_entries WHERE tenant_id = :tenant"
    counts: dict[tuple[int, str, int], list[int]] = {}
    for kind, raw in await world.rows(query, tenant=TENANT):
        if kind != "decision":
            continue
        entry = orjson.loads(raw)
        index, request = index_of(entry), entry["pub"]["request"]
        agent, source = request.get("agent_id"), request["source_id"]
        mismatch = entry["pub"]["response"]["policy_name"] == "session_agent_mismatch"
        values = {
            Dimension.source_type: request["source_type"],
            Dimension.agent_role: request["agent_role"],
            Dimension.source_id: source,
            Dimension.agent: agent,
            Dimension.agent_source: None if agent is None else agent + SEPARATOR + source,
            Dimension.session: request.get("session_id"),
            Dimension.second: "",
            Dimension.minute: "",
            Dimension.mismatch_second: "" if mismatch else None,
            Dimension.mismatch_minute: "" if mismatch else None,
        }
        for dimension, value in values.items():
            if value is not None:
                bucket = index.ts // BUCKETS[dimension] if dimension in BUCKETS else 0
                row = counts.setdefault((dimension, value, bucket), [0, 0, 0])
                row[0 if index.decision == "ALLOW" else 1] += 1
                row[2] = max(row[2], index.ts)
    return counts


async def kept(world: OpenStore, tenant: str = TENANT) -> dict[tuple[int, str, int], list[int]]:
    query = (
        "SELECT facet, value, bucket, allowed, denied, last_ts FROM tallies"
        " WHERE tenant_id = :tenant"
    )
    rows = await world.rows(query, tenant=tenant)
    return {(row[0], row[1], row[2]): list(row[3:]) for row in rows}


async def filled(world: OpenStore, seed: int = 1, records: int = 300) -> None:
    """Appends decisions in batches of many sizes, some of them a sidecar's and days old."""
    chance, spool = random.Random(seed), Spool()
    left = records
    while left > 0:
        batch = [anything(chance) for _ in range(chance.randint(1, 40))]
        left -= len(batch)
        if chance.random() < 0.5:
            for each in batch:
                await world.log.append(TENANT, decision(**each))
        else:
            at = world.now() - chance.randint(0, 30 * DAY)
            payloads = [spool.record(decision(**each), at=at) for each in batch]
            await ingest(world.store, TENANT, "sidecar-1", "i1", payloads)


async def first_allowed_as_in_the_log(world: OpenStore) -> None:
    query = "SELECT entry FROM log_entries WHERE tenant_id = :tenant AND decision = 'ALLOW'"
    first: dict[tuple[str, str], int] = {}
    for (raw,) in await world.rows(query, tenant=TENANT):
        index = index_of(orjson.loads(raw))
        assert index.agent_role is not None
        assert index.source_id is not None
        pair = (index.agent_role, index.source_id)
        first[pair] = min(first.get(pair, index.ts), index.ts)
    rows = await world.rows("SELECT agent_role, source_id, first_ts FROM first_accesses")
    assert {(role, source): ts for role, source, ts in rows} == first


async def test_counts_equal_a_scan_over_the_log(world: OpenStore) -> None:
    await filled(world)
    assert await kept(world) == await walked(world)
    assert await kept(world, OTHER) == {}
    await first_allowed_as_in_the_log(world)


async def test_an_event_with_a_future_time_is_counted_as_of_now(world: OpenStore) -> None:
    """A sidecar whose clock is an hour ahead must not be missing from a window for an hour."""
    spool = Spool()
    ahead = spool.record(decision("DENY"), at=world.now() + 3_600_000_000)
    await ingest(world.store, TENANT, spool.source, spool.instance, [ahead])
    query = "SELECT max(bucket) FROM tallies WHERE tenant_id = :tenant AND facet = 6"
    ((second,),) = await world.rows(query, tenant=TENANT)
    assert second <= world.now() // 1_000_000


@pytest.mark.deep(stands_in="test_counts_equal_a_scan_over_the_log")
async def test_a_pair_of_role_and_source_is_first_allowed_once(world: OpenStore) -> None:
    await filled(world)
    await first_allowed_as_in_the_log(world)


async def test_a_failed_append_counts_nothing(world: OpenStore) -> None:
    async def work(tx: Transaction) -> None:
        await tx.append(decision())
        raise RuntimeError("for a test")

    try:
        await world.store.write(TENANT, work)
    except RuntimeError:
        pass
    else:
        raise AssertionError("it was committed")
    assert await kept(world) == {}


async def test_purged_entries_are_removed_from_the_counts(world: OpenStore) -> None:
    await filled(world, records=100)
    before = await kept(world)
    gone = (
        (await world.rows("SELECT entry FROM log_entries ORDER BY seq LIMIT 40")) if before else []
    )

    def take(connection: Connection, again: bool) -> None:
        LogChain.load(connection, TENANT)
        tally = BatchCounts()
        for (raw,) in gone:
            entry = orjson.loads(raw)
            tally.add(index_of(entry), entry["pub"]["request"]["source_type"])
        tally.subtract(connection, TENANT)
        for (raw,) in gone:
            seq = orjson.loads(raw)["seq"]
            connection.exec_driver_sql(f"DELETE FROM log_entries WHERE seq = {int(seq)}")

    await world.store.run(TENANT, take)
    after, again = await kept(world), await walked(world)
    for key in before.keys() | after.keys() | again.keys():
        if Dimension(key[0]) in BUCKETS:
            assert after[key] == before[key]
        else:
            assert after.get(key, [0, 0])[:2] == again.get(key, [0, 0])[:2]
            assert (key in after) == (key in again)


async def test_an_expired_bucket_is_dropped_and_no_other(world: OpenStore) -> None:
    await world.log.append(TENANT, decision(agent_id="a1"))
    before, now = await kept(world), world.now()
    seconds = {Dimension.second, Dimension.mismatch_second}

    def forget(connection: Connection, again: bool) -> bool:
        return drop_expired(connection, TENANT, now, limit=1)

    for later, gone in (
        (HOUR, set[Dimension]()),
        (4 * HOUR, seconds),
        (8 * DAY + 2 * HOUR, BUCKETS.keys() - {Dimension.agent_source}),
        (10 * DAY + HOUR, BUCKETS.keys()),
    ):
        now = world.now() + later
        while await world.store.run(TENANT, forget):
            pass
        left = {key for key in before if Dimension(key[0]) not in gone}
        assert (await kept(world)).keys() == left, later


@pytest.mark.deep(stands_in="test_an_expired_bucket_is_dropped_and_no_other")
async def test_only_expired_buckets_are_dropped(world: OpenStore) -> None:
    await filled(world)
    before = await kept(world)
    rounds = 0

    def forget(connection: Connection, again: bool) -> bool:
        return drop_expired(connection, TENANT, world.now(), limit=1)

    while await world.store.run(TENANT, forget):
        rounds += 1
    assert rounds
    after = await kept(world)
    gone = before.keys() - after.keys()
    assert {Dimension(key[0]) for key in gone} <= set(BUCKETS)
    assert Counter(Dimension(key[0]) for key in gone)[Dimension.agent] > 0
    assert all(after[key] == before[key] for key in after)
    lately = world.now() - 7 * DAY
    assert {key for key in before if _recent(key, lately)} <= after.keys()


def _recent(key: tuple[int, str, int], since: int) -> bool:
    width = BUCKETS.get(Dimension(key[0]))
    short = Dimension(key[0]) in (Dimension.second, Dimension.mismatch_second)
    return not short and (width is None or key[2] * width >= since)


async def test_queries_answer_from_the_counts(world: OpenStore) -> None:
    for each in (
        {"agent_id": "a1", "source_id": "one"},
        {"agent_id": "a1", "source_id": "two"},
        {"agent_id": "a1", "source_id": "two", "verdict": "DENY"},
        {"agent_id": "a1\u0020", "source_id": "three"},
        {"agent_id": "a1x", "source_id": "four"},
    ):
        await world.log.append(TENANT, decision(**each))
    since = world.now() - 7 * DAY
    async with world.store.reading(TENANT) as connection:
        sources = await tallies.sources_of(connection, TENANT, "a1", since, 10)
        assert [(each.value, each.allowed, each.denied) for each in sources] == [
            ("two", 1, 1),
            ("one", 1, 0),
        ]
        lately = await tallies.by_agent(connection, TENANT, since)
        assert {each.value: each.total for each in lately} == {"a1": 3, "a1 ": 1, "a1x": 1}
        top = await tallies.top_of(connection, TENANT, Dimension.source_id, 2)
        assert [each.value for each in top] == ["two", "four"]
        (whole,) = await tallies.all_of(connection, TENANT, Dimension.source_type)
        assert (whole.value, whole.allowed, whole.denied) == ("api", 4, 1)
        now = world.now()
        window = await tallies.window(connection, TENANT, Dimension.second, now - DAY, now + DAY)
        assert (window.allowed, window.denied) == (4, 1)
        many, pairs = await tallies.new_accesses(connection, TENANT, now - DAY, now + DAY, 2)
        assert (many, len(pairs)) == (4, 2)
