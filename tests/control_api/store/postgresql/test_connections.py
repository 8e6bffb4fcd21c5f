"""PostgreSQL that closes connections, does not answer, or makes its callers wait."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import select, text

from control_api.database_limits import DatabaseLimits
from control_api.log.append import Log
from control_api.log.verify import verify
from control_api.store.database import connect
from control_api.store.errors import ReadFault, WriteFault
from control_api.store.log.chain import Appended
from control_api.store.migrate import migrate
from control_api.store.schema.tables import tenants
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from tests.support import waiting
from tests.support.open_store import OTHER, TENANT, Now, OpenStore, decision, opened, sql
from tests.support.postgres import Server, serving, shared_server, unbound

OURS = "application_name = 'sluice' AND datname = current_database()"


async def backends(url: str) -> list[int]:
    return [row[0] for row in await sql(url, f"SELECT pid FROM pg_stat_activity WHERE {OURS}")]


async def test_dead_connections_are_replaced_silently(postgresql_url: str) -> None:
    """As after a restart of the server: later callers see no error."""
    async with opened(postgresql_url) as world:
        async with held(world.store, 10):
            before = await backends(postgresql_url)
        assert len(before) >= 10

        async def durable(tx: Transaction) -> object:
            return (await tx.connection.execute(text("SHOW synchronous_commit"))).scalar()

        # What the server answered was on its disk.
        assert await world.store.write(TENANT, durable) == "on"
        query = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}"
        await sql(postgresql_url, query)
        async with held(world.store, 10):
            pass
        assert (await world.log.append(TENANT, decision())).seq == 0
        assert not set(before) & set(await backends(postgresql_url))


async def _look(store: Store) -> None:
    async with held(store, 1):
        pass


@asynccontextmanager
async def held(store: Store, count: int) -> AsyncIterator[None]:
    """So many connections that have answered, all in use at the same time."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            connection = await stack.enter_async_context(store.reading(TENANT))
            await connection.execute(select(tenants.c.name))
        yield


@asynccontextmanager
async def impatient(url: str, seconds: float) -> AsyncIterator[OpenStore]:
    """A world with few connections, and that time limit."""
    async with opened(url), asyncio.TaskGroup() as group:
        clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
        database = await connect(url, DatabaseLimits(connections=3, seconds=seconds))
        store = Store(database, clock, group)
        yield OpenStore(url, database, store, await Log.open(store), Now())
    await store.close()


async def test_a_server_that_stays_silent_is_given_up(postgresql_url: str) -> None:
    async with impatient(postgresql_url, 3) as world:
        async with held(world.store, 3):
            stopped = await backends(postgresql_url)
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(ReadFault):
                await _look(world.store)
            # Its connection is closed, and the next caller gets a new one.
            await _look(world.store)
            await asyncio.gather(world.log.append(TENANT, decision()), _look(world.store))
        finally:
            for process in stopped:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
        assert (await verify(world.store, TENANT))["total"] == 1


async def test_a_caller_that_gets_no_connection_gets_a_fault(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_api.store.postgresql.engine.POOL_SECONDS", 0.2)
    async with opened(postgresql_url, DatabaseLimits(connections=2, seconds=30)) as world:
        async with held(world.store, 2):
            with pytest.raises(ReadFault):
                await _look(world.store)
        await _look(world.store)


@pytest.mark.deep(stands_in="test_a_caller_that_gets_no_connection_gets_a_fault")
async def test_an_exhausted_pool_is_a_fault(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_api.store.postgresql.engine.POOL_SECONDS", 0.2)
    async with impatient(postgresql_url, 30) as world:
        async with held(world.store, 3):
            with pytest.raises(ReadFault):
                await _look(world.store)
        await _look(world.store)


async def test_a_lock_that_is_held_too_long_is_a_fault(postgresql_url: str) -> None:
    async with impatient(postgresql_url, 3) as world:
        other = await asyncpg.connect(unbound(postgresql_url).replace("+asyncpg", ""))
        await other.execute(f"BEGIN; SELECT 1 FROM tenants WHERE tenant_id = '{TENANT}' FOR UPDATE")
        with pytest.raises(WriteFault):
            await world.store.write(TENANT, lambda tx: tx.publish({"role/a": b"1"}))
        await world.store.write(OTHER, lambda tx: tx.publish({"role/a": b"1"}))
        await other.close()
        assert await world.store.write(TENANT, lambda tx: tx.publish({"role/a": b"1"})) == 1


async def test_a_stopped_replica_does_not_block_others_for_long(postgresql_url: str) -> None:
    """It holds a tenant's row and sends nothing: PostgreSQL ends its transaction."""
    async with opened(postgresql_url) as world, opened(postgresql_url) as stopped:
        limit = (
            "SELECT setting::int FROM pg_settings "
            "WHERE name = 'idle_in_transaction_session_timeout'"
        )
        locked, written = asyncio.Event(), asyncio.Event()

        async def silent(tx: Transaction) -> None:
            assert (await tx.connection.execute(text(limit))).scalar() == 5000
            locked.set()
            await written.wait()  # so only PostgreSQL can have ended the transaction
            await tx.publish({"role/a": b"1"})

        waiting = asyncio.ensure_future(stopped.store.write(TENANT, silent))
        await locked.wait()
        assert await world.store.write(TENANT, lambda tx: tx.publish({"role/b": b"1"})) == 1
        written.set()
        with pytest.raises(WriteFault):
            await waiting


@pytest.mark.deep(
    stands_in="tests/control_api/store/test_store.py::test_two_replicas_keep_one_order"
)
async def test_two_replicas_with_sixteen_writers_each_make_one_log(postgresql_url: str) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:

        async def writer(world: OpenStore) -> None:
            for _ in range(20):
                await world.log.append(TENANT, decision())

        writers = (writer(world) for world in (one, two) for _ in range(16))
        await asyncio.gather(*writers)
        answer = await verify(one.store, TENANT)
        assert (answer["valid"], answer["total"], answer["events"]) == (True, 640, 640)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may damage."""
    # Not in `tmp_path`: as root, `nobody` must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="sluice-tests-"))
    owner = subprocess.Popen(["sleep", "600"])
    try:
        yield shared_server(folder, owner.pid, durable=True)
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.deep(stands_in="test_dead_connections_are_replaced_silently")
async def test_a_server_crash_loses_no_answered_record(own_server: Server) -> None:
    """One of its processes is killed: the server closes every connection and recovers."""
    with own_server.database() as owner:
        url = serving(owner)
        await migrate(owner, url)
        async with opened(url) as world:
            answered: list[Appended] = []
            back, failed = asyncio.Event(), asyncio.Event()

            async def writer() -> None:
                while not back.is_set():
                    try:
                        answered.append(await world.log.append(TENANT, decision()))
                    except WriteFault:
                        failed.set()
                        await asyncio.sleep(0.05)

            writers = [asyncio.ensure_future(writer()) for _ in range(16)]
            await waiting.until_async("they write", lambda: len(answered) > 100)
            os.kill((await backends(url))[0], signal.SIGKILL)
            await failed.wait()
            enough = len(answered) + 500
            await waiting.until_async("it comes back", lambda: len(answered) >= enough)
            back.set()
            await asyncio.gather(*writers)
            held = await sql(url, "SELECT seq, eid FROM log_entries")
            places = {(each.seq, each.eid) for each in answered}
            assert len(places) == len(answered)
            assert places <= {(seq, eid) for seq, eid in held}
            assert len({eid for _, eid in held}) == len(held)
            answer = await verify(world.store, TENANT)
            assert (answer["valid"], answer["total"]) == (True, len(held))
