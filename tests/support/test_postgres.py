"""The tests' PostgreSQL: each test gets a fresh database, and a killed run leaves none behind."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from pathlib import Path

import asyncpg
import pytest

from tests.support import postgres, waiting


async def ask(url: str, *statements: str) -> int:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        for statement in statements:
            await connection.execute(statement)
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        return int(await connection.fetchval(tables))
    finally:
        await connection.close()


@pytest.mark.parametrize("time_", ["once", "again"])
async def test_every_test_gets_an_empty_database(postgres_url: str, time_: str) -> None:
    assert await ask(postgres_url) == 0
    assert await ask(postgres_url, f"CREATE TABLE {time_} (a int)") == 1


async def test_a_connection_needs_the_password(postgres_url: str) -> None:
    user, _, place = postgres_url.partition("@")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(f"{user.rpartition(':')[0]}:wrong@{place}")


@pytest.mark.deep(stands_in="test_every_test_gets_an_empty_database")
def test_a_killed_run_leaves_no_server() -> None:
    # Not in `tmp_path`: as root, `nobody` must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="sluice-tests-"))
    owner = subprocess.Popen(["sleep", "600"])
    try:
        server = postgres.shared_server(folder, owner.pid)
        assert accepts(server.port)
    finally:
        owner.kill()
        owner.wait()
    waiting.until("its folder is gone", lambda: not folder.exists())
    assert not accepts(server.port)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
