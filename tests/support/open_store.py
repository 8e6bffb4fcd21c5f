"""A real store on a real database, with two tenants, for the tests of store and log."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from control_api.database_limits import LIMITS, DatabaseLimits
from control_api.log.append import Log
from control_api.store.database import Database, connect
from control_api.store.queries import tenant_rows
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.store.url import parse_url
from policies.evaluate import Decision, refuse
from policies.ground.canonical import b64, rfc3339
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.retrieval import Retrieval
from policies.trail.lineage import ReportedAction, lineage_record
from policies.trail.record import Record, decision_record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from tests.support.postgres import unbound

TENANT = "default"
OTHER = "ten_other"


class Now:
    """The real time, plus the time that a test adds."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead


@dataclass
class OpenStore:
    """A store and its database. A test replaces methods of `database`, on which `store` works, to
    make them fail."""

    url: str
    database: Database
    store: Store
    log: Log
    now: Now

    async def rows(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a statement, on a connection outside the store."""
        return await sql(self.url, statement, **values)


@asynccontextmanager
async def opened(url: str, limits: DatabaseLimits = LIMITS) -> AsyncIterator[OpenStore]:
    """Open the store at `url` as a service does. A new one gets two tenants."""
    now = Now()
    async with asyncio.TaskGroup() as group:
        database = await connect(url, limits)
        store = Store(database, Clock(now, time.monotonic), group)
        async with store.reading_all_tenants() as connection:
            new = await tenant_rows.installed(connection) is None
        if new:
            await _first_start(store)
        yield OpenStore(url, database, store, await Log.open(store), now)
    await store.close()


async def _first_start(store: Store) -> None:
    async def install(tx: Transaction) -> None:
        made = tenant_rows.Installation("epoch", tx.now, None)
        assert await tenant_rows.install(tx.connection, made)

    async def make(tx: Transaction) -> None:
        row = tenant_rows.StoredTenant(tx.tenant_id, tx.tenant_id, tx.now, False, False, True)
        await tenant_rows.add(tx.connection, row)

    await store.write("", install)
    for tenant_id in (TENANT, OTHER):
        await store.write(tenant_id, make)


async def sql(url: str, statement: str, **values: Any) -> list[Any]:
    """Run a statement as a superuser of the database; returns its rows."""
    engine = create_async_engine(parse_url(unbound(url)), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            done = await connection.execute(text(statement), values)
            return list(done.all()) if done.returns_rows else []
    finally:
        await engine.dispose()


def event_id() -> str:
    return uuid7(time.time_ns() // 1000, os.urandom(10))


def decision(verdict: str = "ALLOW", **asked: Any) -> Record:
    """Return the record of a decision on a retrieval with these fields."""
    fields = {
        "agent_role": "support",
        "user_id": "u-1",
        "source_id": "handbook",
        "sensitivity_level": "low",
        "query": "how do I?",
    }
    policy = asked.pop("policy_name", "support-reads")
    eid = asked.pop("eid", None) or event_id()
    made = refuse(policy, "for a test")
    if verdict == "ALLOW":
        made = Decision("ALLOW", policy, "for a test", None, "pol_1", 1, made.findings)
    retrieval = Retrieval(**{**fields, **asked})
    return decision_record(retrieval, made, None, event_id=eid, salt=os.urandom(32))


def action(event: str, leaf: bytes, number: int) -> Record:
    """Return the record of a lineage action on an event."""
    return lineage_record(
        ReportedAction(event, leaf, "summary_sent", {"number": number}, "completed"),
        record_id=event_id(),
        salt=os.urandom(32),
        masked=None,
    )


@dataclass
class Spool:
    """Produces the records that a sidecar's spool would deliver."""

    source: str = "sidecar-1"
    instance: str = "i1"
    n: int = 0
    prev: str = ""
    hashes: list[bytes] = field(default_factory=list)

    def records(self, count: int, **asked: Any) -> list[dict[str, Any]]:
        return [self.record(decision(**asked)) for _ in range(count)]

    def record(self, record: Record, at: int | None = None) -> dict[str, Any]:
        """Return the next payload, decoded."""
        t = rfc3339(at or time.time_ns() // 1000)
        core = record.core(src_member(self.source, self.instance, self.n, self.prev, t))
        self.hashes.append(core_hash(core))
        self.n, self.prev = self.n + 1, b64(self.hashes[-1])
        return dict(orjson.loads(spool_payload(core, record.openings)))
