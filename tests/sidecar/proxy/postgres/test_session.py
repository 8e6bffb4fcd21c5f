"""A session with a real PostgreSQL: a statement is judged by what the server says that it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from policies.ground.addresses import ListenAddress
from sidecar.settings.model import Defaults, Source
from sidecar.settings.postgres import AllowedFunctions, Login, RelationRule
from tests.support.postgres import OWNER, Server, owned
from tests.support.proxy import Sidecar, policy, sidecar

MADE = """
CREATE SCHEMA hr;
CREATE TABLE hr.salaries (id int PRIMARY KEY, pay int);
INSERT INTO hr.salaries VALUES (1, 734100);
CREATE TABLE tickets (id int PRIMARY KEY, title text);
INSERT INTO tickets SELECT n, 'ticket ' || n FROM generate_series(1, 2500) AS n;
CREATE VIEW everybody AS SELECT id, pay FROM hr.salaries;
CREATE FUNCTION peek() RETURNS int LANGUAGE plpgsql AS $$
DECLARE found int; BEGIN
  BEGIN SELECT pay INTO found FROM hr.salaries; RAISE EXCEPTION 'x';
  EXCEPTION WHEN OTHERS THEN END;
  RETURN found; END $$;
"""


@pytest.fixture
async def made(postgres_server: Server, tmp_path: Path) -> AsyncIterator[tuple[Sidecar, str]]:
    """Yield a sidecar that denies `hr.*`, and the address at which agents reach the database."""
    with postgres_server.database() as url:
        postgres_server.execute(owned(url), MADE)
        database = url.rpartition("/")[2]
        (tmp_path / "password").write_text(postgres_server.password)
        source = Source(
            alias="crm",
            kind="postgres",
            upstream=f"postgres://127.0.0.1:{postgres_server.port}/{database}",
            listen=ListenAddress("127.0.0.1", 0),
            sensitivity="medium",
            login=Login(OWNER, tmp_path / "password"),
            relations=(RelationRule("public.tickets", "tickets", "high"),),
            functions=AllowedFunctions(("public.peek",)),
            defaults=Defaults(user="ada"),
        )
        denied = policy(denied_sources=(f"postgres://crm/{database}/hr/*",))
        async with sidecar(tmp_path, denied) as running:
            proxy = running.proxy([source])
            await proxy.start()
            try:
                port = proxy.port("crm")
                yield running, f"postgresql://agent@127.0.0.1:{port}/{database}"
            finally:
                await proxy.close(1)


async def test_a_statement_is_judged_by_what_the_server_reads(made: tuple[Sidecar, str]) -> None:
    running, address = made
    connection = await asyncpg.connect(address, ssl=False)
    try:
        assert await connection.fetchval("SELECT title FROM tickets WHERE id = $1", 7) == "ticket 7"
        assert len(await connection.fetch("SELECT * FROM tickets")) == 2500
        for read in (
            "SELECT * FROM hr.salaries",
            "SELECT pay FROM everybody",
            "SELECT nothing FROM everybody",
            "SELECT public.peek()",
            "SELECT pay FROM hr.salaries WHERE 1 / (pay - 734100) = 1",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError) as denied:
                await connection.fetch(read)
            assert "hr/salaries" in str(denied.value)
            assert "734100" not in (denied.value.detail or "")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="denies writes"):
            await connection.execute("DELETE FROM tickets")
        async with connection.transaction():
            await connection.execute("SET LOCAL sluice.user_id = 'bob'")
            assert await connection.fetchval("SELECT count(*) FROM tickets") == 2500
    finally:
        await connection.close()
    decisions = await running.decisions()
    assert {each[0] for each in decisions if each[2] == "tickets"} == {"ALLOW", "DENY"}
    assert [each[0] for each in decisions if each[2].endswith("/hr/salaries")] == ["DENY"] * 5
    users = {each["cm"]["user_id"] for each in await running.records() if each["kind"] != "lineage"}
    assert len(users) > 1
    returned = {each["detail"]["rows"] for each in await running.lineage(3)}
    assert returned >= {1, 2500}
