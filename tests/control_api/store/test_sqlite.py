"""The SQLite file: its modes, its durability, and its lock."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from control_api.store.errors import ReadFault, WriteFault
from control_api.store.store import Store
from control_api.store.url import UnusableDatabase, parse_url
from tests.support.open_store import TENANT, decision, opened


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = tmp_path / "new" / "sluice.db"
        async with opened(f"sqlite:///{file}") as world:
            await world.log.append(TENANT, decision())
            made = sorted(path.name for path in file.parent.iterdir())
            assert made == ["sluice.db", "sluice.db-shm", "sluice.db-wal"]
            assert {mode(path) for path in file.parent.iterdir()} == {0o600}
            assert mode(file.parent) == 0o700
    finally:
        os.umask(before)


async def test_a_closed_store_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "sluice.db"
    async with opened(f"sqlite:///{file}") as world:
        await world.log.append(TENANT, decision())
    assert [path.name for path in tmp_path.iterdir()] == ["sluice.db"]


async def test_a_commit_returns_only_after_the_disk_has_it(sqlite_url: str) -> None:
    def ask(connection: Connection, _: bool) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    async with opened(sqlite_url) as world:
        assert await world.store.run("", ask) == ["wal", 2, 1, 0]
        async with world.database.writing("") as connection:
            assert await connection.run_sync(ask, False) == ["wal", 2, 1, 0]


async def test_a_reader_cannot_write(sqlite_url: str) -> None:
    async with opened(sqlite_url) as world:
        with pytest.raises(ReadFault) as caught:
            await _write_as_reader(world.store)
        assert isinstance(caught.value.__cause__, OperationalError)


async def _write_as_reader(store: Store) -> None:
    async with store.reading(TENANT) as connection:
        await connection.execute(text("DELETE FROM tenants"))


def _hold(file: str, held: threading.Event, seconds: float) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    held.set()
    time.sleep(seconds)
    other.execute("COMMIT")
    other.close()


async def test_a_writer_waits_for_another_process(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        held = threading.Event()
        other = threading.Thread(target=_hold, args=(f"{tmp_path}/sluice.db", held, 0.5))
        other.start()
        await asyncio.to_thread(held.wait)
        assert (await world.log.append(TENANT, decision())).seq == 0
        other.join()


async def test_a_writer_gives_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "control_api.store.sqlite._CONNECT", {"timeout": 0.1, "isolation_level": None}
    )
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        held = threading.Event()
        other = threading.Thread(target=_hold, args=(f"{tmp_path}/sluice.db", held, 2))
        other.start()
        await asyncio.to_thread(held.wait)
        with pytest.raises(WriteFault):
            await world.log.append(TENANT, decision())
        other.join()
        assert (await world.log.append(TENANT, decision())).seq == 0


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+aiosqlite:///:memory:",
        "sqlite:///x?mode=memory",
        "mysql://u:secret@h/d",
        "postgresql+psycopg2://u:secret@h/d",
        "u:secret@h",
        "",
    ],
)
def test_an_unusable_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(UnusableDatabase) as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_a_url_may_leave_out_the_driver() -> None:
    assert parse_url("sqlite:///x.db").drivername == "sqlite+aiosqlite"
    assert parse_url("postgresql://h/d").drivername == "postgresql+asyncpg"
