"""The relations that a text names are those that a real server locks for it."""

from __future__ import annotations

import asyncpg
import pytest

from tests.sidecar.protocols.postgres.test_reader import RELATIONS
from tests.support.postgres import unbound

LOCKED = """
    SELECT CASE WHEN nspname = 'public' THEN relname ELSE format('%s.%s', nspname, relname) END
    FROM pg_locks JOIN pg_class c ON c.oid = relation JOIN pg_namespace n ON n.oid = relnamespace
    WHERE pid = pg_backend_pid() AND relkind = 'r' AND nspname !~ '^pg_'
"""


@pytest.mark.deep(
    stands_in="tests/sidecar/protocols/postgres/test_reader.py::"
    "test_a_statement_names_the_relations_that_the_grammar_sees"
)
async def test_a_server_locks_the_relations_that_a_text_names(postgres_url: str) -> None:
    connection = await asyncpg.connect(unbound(postgres_url).replace("+asyncpg", ""))
    compared = 0
    try:
        for schema in ("s", "secret", '"a.b"'):
            await connection.execute(f"CREATE SCHEMA {schema}")
        for table in (*"abcdefghijklmtu", "s.t", "s.a", "secret.t", '"a.b"."C.d"'):
            await connection.execute(f"CREATE TABLE {table} (x int)")
        for text, named in RELATIONS.items():
            transaction = connection.transaction()
            await transaction.start()
            try:
                if text.startswith(("DECLARE", "PREPARE", "EXPLAIN")):
                    await connection.execute(text)
                else:
                    await connection.prepare(text)
                locked = [row[0] for row in await connection.fetch(LOCKED)]
            except asyncpg.PostgresError:
                continue  # about columns and types, which the texts only sketch
            finally:
                await transaction.rollback()
            if not text.startswith("COPY"):  # locks when it runs
                assert sorted(locked) == sorted(named.split()), text
                compared += 1
    finally:
        await connection.close()
    assert compared > 35
