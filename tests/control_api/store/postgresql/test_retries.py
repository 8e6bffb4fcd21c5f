"""A transaction that PostgreSQL aborts is retried; one that went wrong is never committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError

from control_api.store.errors import WriteFault, is_conflict
from control_api.store.schema.log import sources
from control_api.store.transaction import Transaction
from tests.support.open_store import TENANT, OpenStore, opened, sql

ABORTED = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{}'; END $$"
SERIALIZABLE = text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")


async def put(connection: Any, source: str, n: int) -> None:
    """Writes some row."""
    await connection.execute(
        text(
            "INSERT INTO sources VALUES (:tenant, :source, 'i', :n, '', 0) "
            "ON CONFLICT (tenant_id, source, instance) DO UPDATE SET n = excluded.n"
        ),
        {"tenant": TENANT, "source": source, "n": n},
    )


async def deadlocked(
    one: OpenStore, other: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Runs two writes that lock the same rows in opposite order; returns how often each ran."""
    met, runs = asyncio.Barrier(2), [0, 0]

    def work(place: int) -> Any:
        async def both(tx: Transaction) -> None:
            runs[place] += 1
            await put(tx.connection, ("a", "b")[place], place)
            if sum(runs) <= 2:
                await met.wait()
            await put(tx.connection, ("b", "a")[place], place)

        return both

    # Separate lanes, so that only row locks order them.
    for world in (one, other):
        monkeypatch.setattr(world.database, "writing", _as_tenant(world.database.writing))
    writes = one.store.write("ten_1", work(0)), other.store.write("ten_2", work(1))
    await asyncio.gather(*writes)
    return runs


def _as_tenant(writing: Any) -> Any:
    return lambda _: writing(TENANT)


@pytest.mark.deep(stands_in="test_an_aborted_append_is_retried")
async def test_a_deadlocks_victim_is_retried(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        runs = await deadlocked(one, two, monkeypatch)
        assert sorted(runs) == [1, 2]
        assert len(await sql(postgresql_url, "SELECT * FROM sources")) == 2


@pytest.mark.deep(stands_in="test_an_aborted_append_is_retried")
async def test_a_serialization_failure_is_retried(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two transactions that each read what the other writes: one has to be aborted."""
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        met, runs, failures = asyncio.Barrier(2), [0, 0], []

        def work(place: int) -> Any:
            async def both(tx: Transaction) -> None:
                runs[place] += 1
                first = runs[place] == 1
                total = len((await tx.connection.execute(select(sources.c.n))).all())
                await put(tx.connection, str(place), total)
                if first:
                    await met.wait()

            return both

        def serializable(writing: Any) -> Any:
            @asynccontextmanager
            async def strict(_: str) -> AsyncIterator[Any]:
                try:
                    async with writing(TENANT) as connection:
                        await connection.execute(SERIALIZABLE)
                        yield connection
                except DBAPIError as error:
                    failures.append(is_conflict(error))
                    raise

            return strict

        for world in (one, two):
            monkeypatch.setattr(world.database, "writing", serializable(world.database.writing))
        await asyncio.gather(one.store.write("1", work(0)), two.store.write("2", work(1)))
        assert failures == [True]
        assert sorted(runs) == [1, 2]
        rows = await sql(postgresql_url, "SELECT n FROM sources ORDER BY n")
        assert rows == [(0,), (1,)]


async def test_an_aborted_append_is_retried(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a serialization failure, and as the victim of a deadlock; but not for
    ever, and not if it went on after an error."""
    monkeypatch.setattr("control_api.store.store.RETRY_PAUSES", (0.001,) * 3)
    async with opened(postgresql_url) as world:
        tries: list[bool] = []

        def work(connection: Connection, again: bool) -> str:
            tries.append(again)
            if len(tries) < 4:
                code = ("40001", "40P01")[len(tries) % 2]
                connection.exec_driver_sql(ABORTED.format(code))
            return "done"

        assert await world.store.run(TENANT, work) == "done"
        # Nothing was committed, so the retry does not look for rows.
        assert tries == [False] * 4
        hopeless: list[int] = []

        async def again(tx: Transaction) -> None:
            hopeless.append(len(hopeless))
            await tx.connection.execute(text(ABORTED.format("40P01")))

        with pytest.raises(WriteFault):
            await world.store.write(TENANT, again)
        assert len(hopeless) == 4

        async def careless(tx: Transaction) -> None:
            await put(tx.connection, "a", 1)
            with suppress(DBAPIError):
                await tx.connection.execute(text("SELECT nothing FROM nowhere"))

        with pytest.raises(AssertionError, match="went on after an error"):
            await world.store.write(TENANT, careless)
        assert await sql(postgresql_url, "SELECT * FROM sources") == []


@pytest.mark.deep(stands_in="test_an_aborted_append_is_retried")
async def test_retries_are_limited(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_api.store.store.RETRY_PAUSES", (0.001,) * 3)
    async with opened(postgresql_url) as world:
        tries = 0

        async def hopeless(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            await tx.connection.execute(text(ABORTED.format("40P01")))

        with pytest.raises(WriteFault):
            await world.store.write(TENANT, hopeless)
        assert tries == 4


@pytest.mark.deep(stands_in="test_an_aborted_append_is_retried")
async def test_a_swallowed_error_is_not_committed(postgresql_url: str) -> None:
    async with opened(postgresql_url) as world:

        async def careless(tx: Transaction) -> None:
            await put(tx.connection, "a", 1)
            with suppress(DBAPIError):
                await tx.connection.execute(text("SELECT nothing FROM nowhere"))

        with pytest.raises(AssertionError, match="went on after an error"):
            await world.store.write(TENANT, careless)
        assert await sql(postgresql_url, "SELECT * FROM sources") == []
        assert await world.store.write(TENANT, lambda tx: tx.publish({"role/b": b"1"})) == 1
