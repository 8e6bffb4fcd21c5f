"""A spool's counter that is ahead of the log is found: records that it covers are not in the log,
and their sidecar has a receipt for them."""

from __future__ import annotations

from typing import Any

import pytest

from control_api.log.counts import SECRET_BYTES, compare_counts
from control_api.log.ingest import ingest
from control_api.log.verify import verify
from tests.control_api.log.purging import SIGNER, aged, purge
from tests.support.open_store import TENANT, OpenStore, Spool, sql


async def _sent(world: OpenStore, spool: Spool, count: int) -> int:
    """The number of the last record that is receipted."""
    records = spool.records(count)
    return (await ingest(world.store, TENANT, spool.source, spool.instance, records)).n


async def _verified(world: OpenStore) -> dict[str, Any]:
    return await verify(world.store, TENANT, (SIGNER.public,))


async def test_records_that_were_receipted_and_never_kept_are_found(world: OpenStore) -> None:
    spool = Spool()
    await _sent(world, spool, 3)
    assert (await _verified(world))["valid"]
    hidden = Spool(spool.source, spool.instance, spool.n, spool.prev)
    hidden.records(2)
    set_ahead = "UPDATE sources SET n = :n, hash = :h WHERE tenant_id = :t"
    await sql(world.url, set_ahead, n=hidden.n - 1, h=hidden.hashes[-1], t=TENANT)
    answer = await _verified(world)
    assert answer["reason"] == (
        "source_gap: the counter of spool `sidecar-1` `i1` holds a record 4, and its last one in "
        "the log is 2"
    )


@pytest.mark.parametrize("column", ["source", "hash"])
async def test_a_counter_of_no_record_is_found(world: OpenStore, column: str) -> None:
    await _sent(world, Spool(), 3)
    await sql(world.url, f"UPDATE sources SET {column} = :v", v=b"x" if column == "hash" else "x")
    assert (await _verified(world))["reason"].startswith("source_gap: ")


async def test_a_spool_whose_records_were_purged_is_no_finding(world: OpenStore) -> None:
    spool = Spool()
    world.now.ahead -= 400 * 86_400_000_000
    await _sent(world, spool, 3)
    world.now.ahead += 400 * 86_400_000_000
    await aged(world, 8, 20)
    await purge(world).run(TENANT)
    answer = await _verified(world)
    assert (answer["reason"], answer["first_seq"] > 3) == (None, True)
    await _sent(world, spool, 2)
    assert (await _verified(world))["valid"]


async def test_the_scheduled_verification_finds_a_counter_that_is_ahead(world: OpenStore) -> None:
    spool = Spool()
    await _sent(world, spool, 3)
    await _sent(world, Spool("sidecar-2"), 2)
    assert await compare_counts(world.store, TENANT, b"s" * SECRET_BYTES, 0.0) is None
    hidden = Spool(spool.source, spool.instance, spool.n, spool.prev)
    hidden.records(2)
    set_ahead = "UPDATE sources SET n = :n, hash = :h WHERE tenant_id = :t AND source = :s"
    ahead = {"n": hidden.n - 1, "h": hidden.hashes[-1], "t": TENANT, "s": spool.source}
    await sql(world.url, set_ahead, **ahead)
    found = await compare_counts(world.store, TENANT, b"s" * SECRET_BYTES, 0.0)
    assert found is not None
    assert found.text().startswith("source_gap: the counter of spool `sidecar-1` `i1` holds a")
