"""A sidecar's records are appended exactly once, whatever it sends and however often."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from control_api.log.ingest import NOTHING_HELD, PART, IngestReceipt, ingest
from control_api.log.verify import verify
from policies.ground.canonical import b64
from policies.ground.errors import Conflict, Invalid, NotFound, SluiceError
from policies.trail.lineage import retrieval_lineage
from policies.trail.record import gap_record
from tests.control_api.log.lost_answers import lose_first_answer
from tests.runner import tiers
from tests.support.open_store import OTHER, TENANT, OpenStore, Spool, decision, event_id

Payload = dict[str, Any]
SOURCE_TYPES = ("api\x00", "", "API", "a" * 33)
"""None of them is valid."""


async def take(
    world: OpenStore, payloads: list[Payload], spool: Spool | None = None
) -> IngestReceipt:
    spool = spool or Spool()
    return await ingest(
        world.store, TENANT, spool.source, spool.instance, payloads, heads=world.log.heads
    )


async def eids(world: OpenStore) -> list[str]:
    return [row.eid for row in await world.rows("SELECT eid FROM log_entries ORDER BY seq")]


def named(payloads: list[Payload]) -> list[str]:
    return [payload["core"]["eid"] for payload in payloads]


async def refused(
    world: OpenStore, payloads: list[Payload], kind: type[SluiceError]
) -> SluiceError:
    """The refusal of these payloads, of which nothing is recorded."""
    before = await eids(world)
    with pytest.raises(kind) as caught:
        await take(world, payloads)
    assert await eids(world) == before
    return caught.value


def one_of_each_kind(spool: Spool) -> list[Payload]:
    """A decision, the lineage of its event, and a gap."""
    event = decision()
    batch = [spool.record(event)]
    lineage = retrieval_lineage(
        event.eid, spool.hashes[-1], {"status": 200}, "completed", record_id=event_id()
    )
    gap = gap_record("disk", instance=None, first=None, lost=2, record_id=event_id())
    return [*batch, spool.record(lineage), spool.record(gap)]


def kinds_of(batch: list[Payload]) -> list[tuple[str, str | None]]:
    """The kinds that `one_of_each_kind` is recorded as, and the events that they belong to."""
    return [("decision", None), ("lineage", batch[0]["core"]["eid"]), ("gap", None)]


async def kinds(world: OpenStore) -> list[tuple[str, str | None]]:
    rows = await world.rows("SELECT kind, ref FROM log_entries ORDER BY seq")
    return [(row.kind, row.ref) for row in rows]


async def test_a_spool_is_taken_in_once_and_in_order(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await take(world, []) == NOTHING_HELD
    spool = Spool()
    first, second = (spool.records(3, user_id="u-77") for _ in range(2))
    third = one_of_each_kind(spool)
    for _ in range(2):
        assert await take(world, first) == IngestReceipt(2, spool.hashes[2])
    assert await take(world, first[1:] + second) == IngestReceipt(5, spool.hashes[5])
    assert await take(world, []) == IngestReceipt(5, spool.hashes[5])
    # The commit succeeds, but neither the service nor the sidecar learns of it.
    with monkeypatch.context() as patch:
        lose_first_answer(world, patch)
        assert await take(world, third) == IngestReceipt(8, spool.hashes[8])
    assert await eids(world) == named(first + second + third)
    assert (await kinds(world))[6:] == kinds_of(third)
    rows = await world.rows("SELECT user_id, openings FROM openings WHERE seq < 6 ORDER BY seq")
    assert [row.user_id for row in rows] == ["u-77"] * 6
    assert orjson.loads(rows[0].openings) == first[0]["open"]
    # Another tenant's spool of the same name is another one.
    theirs = await ingest(world.store, OTHER, spool.source, spool.instance, first)
    assert theirs == IngestReceipt(2, spool.hashes[2])
    for tenant_id, total in ((TENANT, 9), (OTHER, 3)):
        answer = await verify(world.store, tenant_id)
        assert (answer["valid"], answer["total"]) == (True, total), answer


async def test_records_that_do_not_continue_their_spool_are_refused(world: OpenStore) -> None:
    spool, record = Spool(), decision()
    batch = spool.records(4)
    await refused(world, batch[:1] + batch[2:], Conflict)  # a gap within
    await refused(world, batch[1:2], Conflict)  # it begins behind its first record
    await refused(world, [Spool(prev="A" * 43 + "=").record(decision())], Invalid)
    await refused(world, batch[:1] + Spool(source="sidecar-2").records(1), Invalid)
    for source_type in SOURCE_TYPES:
        await refused(world, Spool().records(1, source_type=source_type), Invalid)
    (altered,) = Spool().records(1)
    altered["open"]["user_id"][1] = "someone-else"
    await refused(world, [altered], Invalid)  # an opening that does not open
    with pytest.raises(NotFound):
        await ingest(world.store, "ten_none", "sidecar-1", "i1", batch)
    await world.log.append(TENANT, record)
    another = Spool()
    error = await refused(world, [*another.records(1), another.record(record)], Conflict)
    assert error.details is not None
    assert record.eid in error.details
    assert await take(world, []) == NOTHING_HELD
    await take(world, batch[:1])
    copy = Spool(n=1, prev=b64(spool.hashes[0]))
    await take(world, batch)
    await refused(world, copy.records(4), Conflict)  # a copy that was written to elsewhere


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_a_batch_is_recorded_in_order(world: OpenStore) -> None:
    spool = Spool()
    batch = spool.records(5)
    assert await take(world, batch) == IngestReceipt(4, spool.hashes[4])
    assert await eids(world) == named(batch)
    assert (await verify(world.store, TENANT))["valid"]


async def test_a_batch_in_several_statements_is_recorded_whole_or_not_at_all(
    world: OpenStore,
) -> None:
    """The second statement meets a known id, so the first one is rolled back too."""
    record, spool = decision(), Spool()
    await world.log.append(TENANT, record)
    batch = spool.records(PART + 20)
    await refused(world, [*batch, spool.record(record)], Conflict)
    another, twice = Spool(), decision()
    await refused(world, [another.record(twice), another.record(twice)], Invalid)
    assert await take(world, batch) == IngestReceipt(PART + 19, spool.hashes[PART + 19])
    assert (await eids(world))[1:] == named(batch)
    assert (await verify(world.store, TENANT))["valid"]


@pytest.mark.deep(stands_in="test_two_posts_of_one_batch_at_once_record_it_once")
async def test_the_same_batch_again_changes_nothing(world: OpenStore) -> None:
    batch = Spool().records(5)
    receipt = await take(world, batch)
    assert await take(world, batch) == receipt
    assert len(await eids(world)) == 5


async def test_two_posts_of_one_batch_at_once_record_it_once(world: OpenStore) -> None:
    batch = Spool().records(20)
    receipts = await asyncio.gather(*(take(world, batch) for _ in range(6)))
    assert len(set(receipts)) == 1
    assert await eids(world) == named(batch)
    assert (await verify(world.store, TENANT))["valid"]


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_only_new_records_are_recorded(world: OpenStore) -> None:
    spool = Spool()
    first, second = spool.records(5), spool.records(5)
    await take(world, first)
    assert await take(world, first[2:] + second) == IngestReceipt(9, spool.hashes[9])
    assert await eids(world) == named(first + second)


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_an_empty_batch_is_answered_with_the_last_stored_record(world: OpenStore) -> None:
    assert await take(world, []) == NOTHING_HELD
    spool = Spool()
    await take(world, spool.records(3))
    assert await take(world, []) == IngestReceipt(2, spool.hashes[2])


async def test_a_gap_is_refused_with_the_last_stored_record(world: OpenStore) -> None:
    spool = Spool()
    await take(world, spool.records(2))
    spool.records(1)
    error = await refused(world, spool.records(2), Conflict)
    assert error.details is not None
    assert "held: n 1" in error.details
    assert "received: n 3" in error.details


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_a_gap_within_a_batch_is_refused(world: OpenStore) -> None:
    batch = Spool().records(4)
    await refused(world, batch[:1] + batch[2:], Conflict)


async def test_records_out_of_order_are_refused(world: OpenStore) -> None:
    batch = Spool().records(3)
    await refused(world, [batch[0], batch[2], batch[1]], Conflict)


async def test_a_record_twice_in_a_batch_is_refused(world: OpenStore) -> None:
    batch = Spool().records(2)
    await refused(world, [batch[0], batch[0], batch[1]], Conflict)


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_a_first_record_that_is_not_number_0_is_refused(world: OpenStore) -> None:
    spool = Spool()
    spool.records(1)
    await refused(world, spool.records(1), Conflict)


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_a_first_record_with_a_prev_is_refused(world: OpenStore) -> None:
    payload = Spool(prev="A" * 43 + "=").record(decision())
    await refused(world, [payload], Invalid)


async def test_a_record_that_follows_a_different_one_is_refused(world: OpenStore) -> None:
    held, copy = Spool(), Spool()
    await take(world, held.records(2))
    copy.records(2)
    error = await refused(world, copy.records(1), Conflict)
    assert error.details is not None
    assert "received: n 2, prev" in error.details


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_a_copied_spool_that_diverged_is_detected(world: OpenStore) -> None:
    spool = Spool()
    await take(world, spool.records(1))
    copy = Spool(n=1, prev=spool.prev)
    await take(world, spool.records(1))
    await refused(world, copy.records(2), Conflict)


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_an_id_from_another_source_is_refused(world: OpenStore) -> None:
    """If two spools record the same id, the second one is refused."""
    record = decision()
    await world.log.append(TENANT, record)
    spool = Spool()
    error = await refused(world, [*spool.records(1), spool.record(record)], Conflict)
    assert error.details is not None
    assert record.eid in error.details
    assert await take(world, []) == NOTHING_HELD


@pytest.mark.deep(stands_in="test_a_batch_in_several_statements_is_recorded_whole_or_not_at_all")
async def test_an_id_twice_in_one_batch_is_refused(world: OpenStore) -> None:
    spool, record = Spool(), decision()
    await refused(world, [spool.record(record), spool.record(record)], Invalid)


async def test_each_instance_has_its_own_sequence_of_records(world: OpenStore) -> None:
    for instance in ("i1", "i2"):
        spool = Spool(instance=instance)
        assert (await take(world, spool.records(3), spool)).n == 2
    assert (await verify(world.store, TENANT))["total"] == 6


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_each_tenant_has_its_own_sequence_of_records(world: OpenStore) -> None:
    batch = Spool().records(2)
    await take(world, batch)
    assert (await ingest(world.store, OTHER, "sidecar-1", "i1", batch)).n == 1
    assert (await verify(world.store, OTHER))["total"] == 2


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_an_unknown_tenant_records_nothing(world: OpenStore) -> None:
    with pytest.raises(NotFound):
        await ingest(world.store, "ten_none", "sidecar-1", "i1", Spool().records(1))


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_a_record_of_another_source_is_refused(world: OpenStore) -> None:
    batch = Spool().records(1) + Spool(source="sidecar-2").records(1)
    await refused(world, batch, Invalid)


@tiers.sampled("either_url", each=8)
@pytest.mark.parametrize("payload", [None, 1, [], {}, {"core": {}, "open": {}}, {"core": 1}])
async def test_an_invalid_record_refuses_the_whole_batch(world: OpenStore, payload: Any) -> None:
    error = await refused(world, [*Spool().records(2), payload], Invalid)
    assert error.details is not None
    assert error.details.startswith("records[2]")


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
@pytest.mark.parametrize("source_type", SOURCE_TYPES)
async def test_an_invalid_source_type_is_refused(world: OpenStore, source_type: str) -> None:
    """The database could not store its count, and would block the spool behind it for good."""
    error = await refused(world, Spool().records(1, source_type=source_type), Invalid)
    assert error.details is not None
    assert "`pub.request.source_type` is missing or has the wrong type" in error.details


@pytest.mark.deep(stands_in="test_records_that_do_not_continue_their_spool_are_refused")
async def test_an_opening_that_does_not_open_is_refused(world: OpenStore) -> None:
    (payload,) = Spool().records(1)
    payload["open"]["user_id"][1] = "someone-else"
    await refused(world, [payload], Invalid)


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_every_kind_that_a_sidecar_makes_is_recorded(world: OpenStore) -> None:
    batch = one_of_each_kind(Spool())
    await take(world, batch)
    assert await kinds(world) == kinds_of(batch)
    assert (await verify(world.store, TENANT))["valid"]


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_a_lost_receipt_is_issued_again(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit succeeds, but neither the service nor the sidecar learns of it."""
    lose_first_answer(world, monkeypatch)
    spool = Spool()
    batch = spool.records(4)
    assert await take(world, batch) == IngestReceipt(3, spool.hashes[3])
    assert await eids(world) == named(batch)


@pytest.mark.deep(stands_in="test_a_spool_is_taken_in_once_and_in_order")
async def test_the_salt_of_an_event_is_the_sidecars(world: OpenStore) -> None:
    """The log holds the enforcement point's own commitments."""
    spool = Spool()
    (payload,) = spool.records(1, user_id="u-77")
    await take(world, [payload])
    (row,) = await world.rows("SELECT user_id, openings FROM openings")
    assert row.user_id == "u-77"
    assert orjson.loads(row.openings) == payload["open"]
