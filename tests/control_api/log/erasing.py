"""Erasures and holds for the tests of the log."""

from __future__ import annotations

import os
from typing import Any

from control_api.log.erasure import Erased, Erasure, ErasureRequest
from control_api.store.queries import holds
from control_api.store.queries.holds import StoredHold
from control_api.store.queries.redactions import ErasureTarget
from control_api.store.transaction import Transaction
from policies.trail.change import Hold, hold_placed
from tests.support.open_store import TENANT, OpenStore, event_id


async def erase(world: OpenStore, *event_ids: str, **facet: str) -> Erased:
    """Erases these events, or those of `user_id=` or `session_id=`."""
    target = ErasureTarget(None, "", event_ids)
    if facet:
        [(name, value)] = facet.items()
        target = ErasureTarget(name, value)
    request = ErasureRequest(TENANT, target, "key_1", "asked for")
    return await Erasure(world.store, request, event_id).run()


async def hold(world: OpenStore, object_type: str, object_id: str) -> str:
    hold_id = f"hld_{os.urandom(4).hex()}"

    async def work(tx: Transaction) -> None:
        placed = Hold(hold_id, object_type, object_id, "litigation", "key_1", tx.now)
        entry = await tx.append(hold_placed(placed, record_id=event_id(), salt=os.urandom(32)))
        row = StoredHold(*placed[:6], entry.seq)
        await holds.add(tx.connection, tx.tenant_id, row)

    await world.store.write(TENANT, work)
    return hold_id


async def release(world: OpenStore, hold_id: str) -> None:
    async def work(tx: Transaction) -> None:
        await holds.release(tx.connection, tx.tenant_id, hold_id, "key_1", tx.now)

    await world.store.write(TENANT, work)


async def opened_seqs(world: OpenStore) -> set[int]:
    rows: list[Any] = await world.rows("SELECT seq FROM openings WHERE tenant_id = :t", t=TENANT)
    return {row.seq for row in rows}
