"""Logs to purge, for the tests of retention."""

from __future__ import annotations

import asyncio
import functools
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import update

from control_api.checkpoint_store.location import FileStore
from control_api.log import purge as purge_module
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.ingest import ingest
from control_api.log.purge import Purge
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from control_api.store.schema.tables import tenants
from control_api.store.transaction import Transaction
from policies.ground.signing import KeyRing, Signer
from tests.control_api.store.counters.test_counters import anything
from tests.support.open_store import TENANT, OpenStore, Spool, action, decision, event_id

DAY = 86_400_000_000
SIGNER = Signer(bytes(range(32)))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes cuts divide blocks of the index, and removals take many steps."""
    monkeypatch.setattr(log_index, "BLOCK", 32)
    monkeypatch.setattr(log_index, "STEP", 4)
    monkeypatch.setattr(purge_module, "FIRST_STEP", 7)
    monkeypatch.setattr(purge_module, "MAX_STEP", 16)


@functools.cache
def _notes(url: str) -> TemporaryDirectory[str]:
    """A checkpoint store for each database, removed at the end of the process."""
    return TemporaryDirectory(prefix="notes-")


def purge(world: OpenStore, signer: Signer = SIGNER) -> Purge:
    ring = KeyRing(signer)
    return Purge(world.store, ring, maker(world, ring), event_id)


def maker(world: OpenStore, ring: KeyRing) -> CheckpointMaker:
    return CheckpointMaker(world.store, ring, FileStore(Path(_notes(world.url).name)))


async def keep_days(world: OpenStore, days: int, tenant_id: str = TENANT) -> None:
    async def work(tx: Transaction) -> None:
        row = update(tenants).where(tenants.c.tenant_id == tx.tenant_id)
        await tx.connection.execute(row.values(retention_days=days))

    await world.store.write(tenant_id, work)


async def fill(world: OpenStore, count: int, seed: int = 1) -> None:
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


async def aged(world: OpenStore, old: int, young: int, days: int = 2) -> None:
    """A log whose first `old` entries are older than the retention of a day."""
    await keep_days(world, 1)
    await fill(world, old)
    world.now.ahead += days * DAY
    await fill(world, young, seed=2)


async def valid(world: OpenStore) -> dict[str, Any]:
    answer = await verify(world.store, TENANT, (SIGNER.public,))
    assert answer["valid"], answer["reason"]
    return answer


async def seqs(world: OpenStore) -> list[int]:
    query = "SELECT seq FROM log_entries WHERE tenant_id = :tenant ORDER BY seq"
    return [row.seq for row in await world.rows(query, tenant=TENANT)]
