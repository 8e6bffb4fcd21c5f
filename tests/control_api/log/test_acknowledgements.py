"""The first entry of each sidecar at each revision is found, in its own records."""

from __future__ import annotations

import random
from typing import Any

import pytest

from control_api.log import ingest as acknowledged
from control_api.log.ingest import ingest
from control_api.store.queries.sidecar_rows import FleetReports, StoredSidecar, acknowledged_of_live
from policies.checks.finding import Facts
from policies.definitions.model import Key, TenantSettings
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.trail.record import Record, decision_record, gap_record, heartbeat_record
from policies.trail.spool_chain import Spooled
from tests.control_api.log.purging import DAY, keep_days, purge
from tests.support.open_store import TENANT, OpenStore, Spool, decision, event_id

ASKED = Retrieval("support", "u", "handbook", "low")


def decided(revision: int) -> Record:
    facts = Facts(TenantSettings(TENANT), Key("key_1", "evaluate"), None, None, None, revision)
    return decision_record(
        ASKED, evaluate(ASKED, facts), facts, event_id=event_id(), salt=bytes(32)
    )


def beat(revision: int) -> Record:
    return heartbeat_record(revision, record_id=event_id())


def gap() -> Record:
    return gap_record("x", instance=None, first=None, lost=None, record_id=event_id())


async def ship(world: OpenStore, spool: Spool, *records: Record) -> None:
    payloads = [spool.record(record) for record in records]
    await ingest(world.store, TENANT, spool.source, spool.instance, payloads)


async def stored(world: OpenStore) -> list[tuple[str, int, int]]:
    rows = await world.rows(
        "SELECT source, revision, seq FROM acknowledgements ORDER BY source, revision"
    )
    return [tuple(row) for row in rows]


async def test_the_first_record_at_each_newer_revision_counts(world: OpenStore) -> None:
    spool = Spool()
    await ship(world, spool, decided(3), decided(3), gap(), beat(5), decided(5), decided(8), gap())
    assert await stored(world) == [("sidecar-1", 3, 0), ("sidecar-1", 5, 3), ("sidecar-1", 8, 5)]
    await ship(world, spool, decided(8), gap())
    await ship(world, spool, beat(9))
    found = [
        *[("sidecar-1", 3, 0), ("sidecar-1", 5, 3), ("sidecar-1", 8, 5)],
        ("sidecar-1", 9, 9),
    ]
    assert await stored(world) == found
    # Older ones, and what is no revision, count for nothing.
    await ship(world, spool, decision(), beat(-1), beat(2))
    await ship(world, spool, decided(7))
    assert await stored(world) == found
    # Retention keeps the newest of each sidecar.
    await keep_days(world, 1)
    await ship(world, Spool(source="s-2"), beat(4))
    world.now.ahead += 3 * DAY
    assert (await purge(world).run(TENANT)).removed == 15
    assert await stored(world) == [("s-2", 4, 14), ("sidecar-1", 9, 9)]


@pytest.mark.deep(stands_in="test_a_new_spool_of_the_same_sidecar_continues")
async def test_a_batch_that_arrives_twice_counts_once(world: OpenStore) -> None:
    spool = Spool()
    payloads = [spool.record(record) for record in (beat(1), beat(2))]
    for _ in range(2):
        await ingest(world.store, TENANT, spool.source, spool.instance, payloads)
    assert await stored(world) == [("sidecar-1", 1, 0), ("sidecar-1", 2, 1)]


async def test_a_new_spool_of_the_same_sidecar_continues(world: OpenStore) -> None:
    first = Spool()
    payloads = [first.record(beat(4))]
    for _ in range(2):  # a batch that comes twice counts once
        await ingest(world.store, TENANT, first.source, first.instance, payloads)
    await ship(world, Spool(instance="i2"), beat(4), beat(6))
    assert await stored(world) == [("sidecar-1", 4, 0), ("sidecar-1", 6, 2)]


@pytest.mark.deep(stands_in="test_the_first_record_at_each_newer_revision_counts")
async def test_older_and_invalid_revisions_are_ignored(world: OpenStore) -> None:
    spool = Spool()
    await ship(world, spool, beat(7))
    await ship(world, spool, decided(3), decision(), beat(-1), beat(2**53 - 1 - 2**53))
    assert await stored(world) == [("sidecar-1", 7, 0)]


@pytest.mark.deep(stands_in="test_the_first_record_at_each_newer_revision_counts")
async def test_any_batches_give_the_result_of_a_walk_over_all_records(world: OpenStore) -> None:
    chance, revision = random.Random(7), 0
    spools = [Spool(source=f"s{number}") for number in range(3)]
    newest: dict[str, int] = {}
    expected, seq = [], 0
    for _ in range(25):
        spool, records = chance.choice(spools), list[Record]()
        for _ in range(chance.randint(1, 6)):
            revision += chance.choice([0, 0, 1, 3])
            records.append(chance.choice([decided, beat])(revision))
            if revision > newest.get(spool.source, 0):
                expected.append((spool.source, revision, seq))
                newest[spool.source] = revision
            seq += 1
        await ship(world, spool, *records)
    assert await stored(world) == sorted(expected)


async def test_a_batch_without_a_newer_revision_causes_no_further_statement(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool()
    await ship(world, spool, decided(1))
    read: list[Any] = []
    whole = acknowledged.revision_of

    def counted(record: Spooled) -> int:
        read.append(record)
        return whole(record)

    monkeypatch.setattr(acknowledged, "revision_of", counted)
    monkeypatch.setattr("control_api.store.queries.sidecar_rows.add_acknowledgements", None)
    monkeypatch.setattr("control_api.store.queries.sidecar_rows.newest_acknowledged", None)
    await ship(world, spool, *(decided(1) for _ in range(50)))
    assert len(read) == 1


async def report(world: OpenStore, sidecar_id: str) -> None:
    now = world.now()
    row = StoredSidecar(
        *(sidecar_id, "run", "1.0", None, None, "epoch", 1, None, 0, None, None, now, now)
    )
    await FleetReports(world.store).report(TENANT, row)


async def shown(world: OpenStore, revision: int, after: str = "", limit: int = 10) -> list[Any]:
    async with world.store.reading(TENANT) as connection:
        rows = await acknowledged_of_live(connection, TENANT, revision, world.now(), after, limit)
    return [(row.sidecar_id, row.newest, row.seq, row.hash is not None) for row in rows]


async def test_live_sidecars_are_listed_with_what_their_records_show(world: OpenStore) -> None:
    await ship(world, Spool(source="s-1"), beat(3), beat(5))
    await ship(world, Spool(source="s-2"), beat(4))
    for name in ("s-1", "s-2", "s-3"):
        await report(world, name)
    assert await shown(world, 4) == [
        ("s-1", 5, 1, True),
        ("s-2", 4, 2, True),
        ("s-3", None, None, False),
    ]
    assert await shown(world, 5) == [
        ("s-1", 5, 1, True),
        ("s-2", 4, None, False),
        ("s-3", None, None, False),
    ]
    assert [row[0] for row in await shown(world, 1, "s-1", 1)] == ["s-2"]
    world.now.ahead += 60_000_000
    assert await shown(world, 4) == []


@pytest.mark.deep(stands_in="test_the_first_record_at_each_newer_revision_counts")
async def test_retention_keeps_the_newest_of_each_sidecar(world: OpenStore) -> None:
    await keep_days(world, 1)
    # Heartbeats alone would not be worth a purge.
    await ship(world, Spool(source="s-1"), beat(3), beat(5), decided(5))
    world.now.ahead += 3 * DAY
    await ship(world, Spool(source="s-2"), beat(4), beat(6))
    await purge(world).run(TENANT)
    assert await stored(world) == [("s-1", 5, 1), ("s-2", 4, 3), ("s-2", 6, 4)]
    await report(world, "s-1")
    assert await shown(world, 5) == [("s-1", 5, 1, False)]
