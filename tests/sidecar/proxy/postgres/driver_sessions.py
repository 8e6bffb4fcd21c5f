"""The sessions of all drivers: each runs through an address, and returns what its user would see.

A sidecar is right if the transcript through it equals the one of the server itself. `COPIES` are
what a sidecar refuses: there the transcripts differ, and only the connection must stay usable.
"""

from __future__ import annotations

import functools

from tests.sidecar.proxy.postgres.drivers import (
    of_asyncpg,
    of_node,
    of_pg8000,
    of_psql,
    of_psycopg,
    of_psycopg2,
    of_sqlalchemy,
    of_stores,
)
from tests.sidecar.proxy.postgres.drivers.transcript import Session
from tests.support.postgres_source import Source

SESSIONS: dict[str, Session] = {
    "psycopg": of_psycopg.sync,
    "psycopg, asynchronous": of_psycopg.asynchronous,
    "psycopg, binary": of_psycopg.binary,
    "psycopg, pipeline": of_psycopg.pipeline,
    "psycopg, server cursors": of_psycopg.server_cursors,
    "psycopg2": of_psycopg2.sync,
    "psycopg2, server cursors": of_psycopg2.server_cursors,
    "asyncpg": of_asyncpg.connection,
    "asyncpg, pool": of_asyncpg.pool,
    "pg8000": of_pg8000.dbapi,
    "pg8000, native": of_pg8000.native,
    "SQLAlchemy, psycopg": of_sqlalchemy.psycopg,
    "SQLAlchemy, psycopg2": of_sqlalchemy.psycopg2,
    "SQLAlchemy, pg8000": of_sqlalchemy.pg8000,
    "SQLAlchemy, asyncpg": of_sqlalchemy.asyncpg,
    "SQLAlchemy, psycopg, asynchronous": of_sqlalchemy.psycopg_async,
    "pg": of_node.pg,
    "postgres.js": of_node.postgres_js,
}
COPIES: dict[str, Session] = {
    "psycopg": of_psycopg.copy,
    "psycopg2": of_psycopg2.copy,
    "asyncpg": of_asyncpg.copy,
    "pg8000": of_pg8000.copy,
    "pg": of_node.pg_copy,
    "postgres.js": of_node.postgres_js_copy,
}
# They need a server with pgvector.
STORES: dict[str, Session] = {
    "pgvector": of_stores.pgvector,
    "LangChain, PGVector": of_stores.langchain_vectors,
    "LangChain, SQLDatabase": of_stores.langchain_sql,
    "LlamaIndex, PGVectorStore": of_stores.llama_index,
}


def psql(source: Source) -> Session:
    """Return the session of the psql that came with a server."""
    return functools.partial(of_psql.session, source.programs)


def psql_copy(source: Source) -> Session:
    """Return what psql copies, which a sidecar refuses."""
    return functools.partial(of_psql.copy, source.programs)
