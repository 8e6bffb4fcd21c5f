"""A batch is judged before the log is locked, so the log may get its ids in between."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from control_api.log.ingest import ingest
from control_api.log.judging import Judge, Lookup
from policies.definitions.model import Key
from policies.trail.lineage import retrieval_lineage
from tests.support.open_store import TENANT, OpenStore, Spool, decision, event_id


async def test_an_id_taken_meanwhile_is_refused_with_the_lineage_behind_it(
    world: OpenStore,
) -> None:
    async def nothing_yet(*_: Collection[str] | int) -> dict[str, Any]:
        return {}

    spool, taken = Spool(), decision(eid=event_id())
    batch = [spool.record(taken)]
    follows = retrieval_lineage(taken.eid, b"c" * 32, {}, "delivered", record_id=event_id())
    batch += [spool.record(follows), spool.record(decision())]
    lookup = Lookup(nothing_yet, nothing_yet)
    now = world.store.clock.now()
    key = Key("key_1", "sidecar", agent_ids=("*",))
    judge = Judge(key, spool.source, spool.instance, now, 2 * now, event_id, lookup)
    await world.log.append(TENANT, taken)
    held = await ingest(world.store, TENANT, spool.source, spool.instance, batch, judge=judge)
    assert held.rejected == ((0, "duplicate_id"), (1, "foreign_event"))
