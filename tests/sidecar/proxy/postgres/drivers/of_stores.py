"""Sessions of vector stores and of LangChain's SQL toolkit on PostgreSQL with pgvector.

The frameworks lie in an environment of their own, so their sessions are a program. `fill` makes the
stores at the server itself; a session only reads them, as an agent does.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
from pathlib import Path

import asyncpg
import numpy as np
import psycopg
import sqlalchemy as sa
from pgvector.asyncpg import register_vector as register_asyncpg
from pgvector.psycopg import register_vector
from pgvector.sqlalchemy import Vector

from tests.deploy.sdk.python.framework_environment import python_with
from tests.sidecar.proxy.postgres.drivers import of_asyncpg, of_psycopg, of_sqlalchemy
from tests.sidecar.proxy.postgres.drivers.transcript import Recorder, Transcript
from tests.support.postgres_source import LOGIN, Source
from tests.support.postgres_wire import Address

PROGRAM = Path(__file__).with_name("stores_program.py")
SEARCH = "SELECT id, place <-> $1 AS far FROM articles ORDER BY place <-> $1, id LIMIT 5"


def fill(source: Source) -> None:
    """Make the stores, with documents in them, and let the agent's login read them."""
    for store in ("langchain_vectors", "llama_index"):
        _run(store, "fill", source.superuser)
    source.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {LOGIN}")


def pgvector(address: Address) -> Transcript:
    """Search by pgvector's types with psycopg, asyncpg and SQLAlchemy."""
    seen = Recorder()
    near = np.array([1.0, 2.0, 3.0])
    with of_psycopg.connected(address, seen) as connection:
        register_vector(connection)
        for operator in ("<->", "<=>", "<#>", "<+>"):
            query = f"SELECT id FROM articles ORDER BY place {operator} %s, id LIMIT 5"
            seen.note(f"by {operator}", connection.execute(query, (near,)).fetchall())
        answer = connection.execute("SELECT place FROM articles WHERE id = 1").fetchone()
        seen.note("a vector", str(answer))
        seen.note("average", str(connection.execute("SELECT avg(place) FROM articles").fetchone()))
        connection.execute("SET hnsw.ef_search = 60")
        with psycopg.Cursor(connection) as cursor:
            cursor.execute("SELECT count(*) FROM articles WHERE place <-> %s < 3", (near,))
            seen.note("within a distance", cursor.fetchall())
    asyncio.run(_by_asyncpg(address, seen))
    engine = sa.create_engine(of_sqlalchemy.url("psycopg", address))
    table = sa.table("articles", sa.column("id"), sa.column("place", Vector(3)))
    place = table.c.place
    with engine.connect() as rows:
        order = sa.select(table.c.id).order_by(place.l2_distance(near), table.c.id).limit(5)
        seen.note("by SQLAlchemy", list(rows.execute(order).scalars()))
    engine.dispose()
    return seen.transcript


def _framework(store: str, address: Address) -> Transcript:
    return _run(store, "read", address)


langchain_vectors = functools.partial(_framework, "langchain_vectors")
langchain_sql = functools.partial(_framework, "langchain_sql")
llama_index = functools.partial(_framework, "llama_index")


async def _by_asyncpg(address: Address, seen: Recorder) -> None:
    own = await asyncpg.connect(**of_asyncpg.place(address))
    await register_asyncpg(own)
    found = await own.fetch(SEARCH, np.array([1.0, 2.0, 3.0]))
    seen.note("by asyncpg", [tuple(row.values()) for row in found])
    await own.close()


def _run(store: str, what: str, address: Address) -> Transcript:
    ran = subprocess.run(
        [str(python_with("sql_stores")), str(PROGRAM), store, what, json.dumps(address._asdict())],
        env=os.environ | {"LANGSMITH_TRACING": "false", "PGSSLMODE": "disable"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ran.returncode == 0, ran.stderr
    return [(said, value) for said, value in json.loads(ran.stdout.splitlines()[-1])]
