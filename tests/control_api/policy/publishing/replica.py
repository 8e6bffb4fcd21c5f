"""The publishing parts of a control API on a store, without the rest: for running many of them at
once, and with more documents than anyone would post."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import select

from control_api import settings
from control_api.metrics.metrics import Instruments
from control_api.policy.publishing.assembly import Publishing
from control_api.policy.publishing.redis_sets import SetSigner
from control_api.rollback_recovery import RollbackRecovery
from control_api.store.queries import documents
from control_api.store.schema.tables import set_nodes
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.addresses import RedisUrl
from policies.ground.clock import Clock
from policies.ground.signing import KeyRing, Signer
from policies.sets.merkle_map import ROOT, node_digest
from policies.sets.redis_keys import beats_key, changes_key, document_field, node_field, set_key
from policies.sets.signed_head import Heartbeat, SetHead
from tests.support.open_store import TENANT, event_id, opened
from tests.support.waiting import until_async

SIGNER = Signer(b"r" * 32)


@dataclass
class Replica:
    store: Store
    publishing: Publishing
    registry: CollectorRegistry

    async def publish(self, changed: Mapping[str, bytes | None]) -> int:
        async def work(tx: Transaction) -> int:
            return await tx.publish(changed)

        return await self.store.write(TENANT, work)

    def count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("sluice_redis_pushes_total", labels) or 0.0

    def challenges(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        name = "sluice_redis_challenges_total"
        return self.registry.get_sample_value(name, labels) or 0.0

    async def differs(self, redis: Any) -> str | None:
        """In what the set in Redis is not the store's; None where it is."""
        async with self.store.snapshot(TENANT) as connection:
            revision, stored = await documents.load(connection, TENANT)
            every = select(set_nodes).where(set_nodes.c.tenant_id == TENANT)
            nodes = {row.node: row.body for row in await connection.execute(every)}
        fields = await asyncio.to_thread(redis.hgetall, set_key(TENANT))
        at = fields.pop(b"at", None)
        if at != f"epoch:{revision}".encode():
            return f"it stands at {at!r}, the store at {revision}"
        head = SetHead.opened(fields.pop(b"head"), SIGNER.public, TENANT)
        if (head.revision, head.root) != (revision, node_digest(nodes[ROOT])):
            return "the head is another's"
        fields.pop(b"keys")
        wanted = {document_field(name): body for name, body in stored.items()}
        wanted |= {node_field(name): body for name, body in nodes.items()}
        differing = {name for name in wanted | fields if wanted.get(name) != fields.get(name)}
        return f"{len(differing)} fields, {sorted(differing)[:5]}" if differing else None

    async def settles(self, redis: Any) -> None:
        """Return once the set in Redis is the store's."""

        async def same() -> bool:
            return await self.differs(redis) is None

        await until_async("the set in Redis is the store's", same)


@asynccontextmanager
async def replica(database_url: str, redis_url: str) -> AsyncIterator[Replica]:
    async with opened(database_url) as world:
        registry = CollectorRegistry()
        publishing = Publishing(
            RedisUrl.parse(redis_url),
            world.store,
            SetSigner(KeyRing(SIGNER), "epoch"),
            Clock(world.now, time.monotonic),
            os.urandom,
            Instruments(registry).redis,
            RollbackRecovery(world.store, settings.read({}), event_id).recover,
        )
        loops = [world.store.group.create_task(loop()) for loop in publishing.loops]
        try:
            yield Replica(world.store, publishing, registry)
        finally:
            for task in loops:
                task.cancel()
            await publishing.close()


def heads(redis: Any) -> list[SetHead]:
    """The stream of changes, each believed."""
    entries = redis.xrange(changes_key(TENANT))
    return [SetHead.opened(entry[b"h"], SIGNER.public, TENANT) for _, entry in entries]


def beats(redis: Any) -> list[Heartbeat]:
    """The heartbeats that there are, each believed."""
    entries = redis.xrange(beats_key(TENANT))
    return [Heartbeat.opened(entry[b"b"], SIGNER.public, TENANT) for _, entry in entries]
