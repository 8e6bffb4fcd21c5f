"""Sessions of SQLAlchemy 2 on each driver: Core, the ORM, reflection, savepoints, streaming."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.base import PGInspector
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.sidecar.proxy.postgres.drivers.transcript import (
    FAILING,
    TEN_THOUSAND,
    Recorder,
    Transcript,
)
from tests.support.postgres_wire import Address


class Base(DeclarativeBase):
    """The models of these sessions."""


class Ticket(Base):
    """A row of `tickets`."""

    __tablename__ = "tickets"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    status: Mapped[str | None]


def on(driver: str, address: Address) -> Transcript:
    """Run on a synchronous driver: `psycopg`, `psycopg2` or `pg8000`."""
    seen = Recorder()
    engine = sa.create_engine(url(driver, address), pool_size=2)
    with engine.connect() as connection:
        _session(connection, seen)
    _isolated(engine, seen)
    engine.dispose()
    return seen.transcript


def asynchronous(driver: str, address: Address) -> Transcript:
    """Run on an asynchronous driver: `asyncpg` or `psycopg_async`."""
    seen = Recorder()
    asyncio.run(_asynchronous(url(driver, address), seen))
    return seen.transcript


psycopg = functools.partial(on, "psycopg")
psycopg2 = functools.partial(on, "psycopg2")
pg8000 = functools.partial(on, "pg8000")
asyncpg = functools.partial(asynchronous, "asyncpg")
psycopg_async = functools.partial(asynchronous, "psycopg_async")


def url(driver: str, address: Address) -> sa.URL:
    """Return the engine's URL."""
    return sa.URL.create(
        f"postgresql+{driver}",
        username=address.user,
        password=address.password,
        host=address.host,
        port=address.port,
        database=address.database,
    )


def _session(connection: sa.Connection, seen: Recorder) -> None:
    rows = connection.execute(sa.text("SELECT id, title FROM tickets WHERE id < :n"), {"n": 4})
    seen.note("keys", list(rows.keys()))
    seen.note("rows", [tuple(row) for row in rows])
    _reflected(connection, seen)
    few = sa.select(Ticket.status, sa.func.count()).group_by(Ticket.status).order_by(Ticket.status)
    seen.note("grouped", [tuple(row) for row in connection.execute(few)])
    many = sa.select(Ticket.title).where(Ticket.id.in_([1, 2, 3])).order_by(Ticket.id)
    seen.note("in a list", list(connection.execute(many).scalars()))
    with Session(connection) as session:
        tickets = session.scalars(sa.select(Ticket).order_by(Ticket.id).limit(3))
        seen.note("models", [(ticket.id, ticket.title) for ticket in tickets])
        found = session.get(Ticket, 7)
        seen.note("by its key", None if found is None else found.title)
    streamed = sa.text(TEN_THOUSAND).execution_options(stream_results=True, yield_per=900)
    seen.note("streamed", sum(row[0] for row in connection.execute(streamed)))
    connection.rollback()
    with connection.begin():
        savepoint = connection.begin_nested()
        seen.fails("in a savepoint", lambda: connection.execute(sa.text("SELECT 1/0")))
        savepoint.rollback()
        seen.note("after it", connection.scalar(sa.text("SELECT 2")))
    for name, query in FAILING.items():
        failing = sa.text(query.replace(":", r"\:"))
        seen.fails(name, functools.partial(_fetched, connection, failing))
        connection.rollback()


def _fetched(connection: sa.Connection, statement: sa.TextClause) -> object:
    return connection.execute(statement).fetchall()


def _reflected(connection: sa.Connection, seen: Recorder) -> None:
    inspector = sa.inspect(connection)
    seen.note("schemas", inspector.get_schema_names())
    seen.note("tables", sorted(inspector.get_table_names()))
    seen.note("views", sorted(inspector.get_view_names(schema="api"))[:5])
    seen.note("key", inspector.get_pk_constraint("tickets"))
    seen.note("foreign keys", inspector.get_foreign_keys("payslips"))
    columns = inspector.get_columns("tickets")
    seen.note("columns", [(column["name"], str(column["type"])) for column in columns])
    assert isinstance(inspector, PGInspector)
    enums = inspector.get_enums()
    seen.note("enums", [enum["name"] for enum in enums])
    seen.note("indexes", inspector.get_indexes("tickets"))
    reflected = sa.Table("articles", sa.MetaData(), autoload_with=connection)
    seen.note("reflected", [column.name for column in reflected.columns][:3])


def _isolated(engine: sa.Engine, seen: Recorder) -> None:
    for level in ("AUTOCOMMIT", "REPEATABLE READ"):
        with engine.connect().execution_options(isolation_level=level) as connection:
            shown = connection.scalar(sa.text("SHOW transaction_isolation"))
            seen.note(f"isolation {level}", shown)


async def _asynchronous(where: sa.URL, seen: Recorder) -> None:
    engine = create_async_engine(where, pool_size=3)
    async with engine.connect() as connection:
        await connection.run_sync(_session, seen)

    async def one(number: int) -> Any:
        async with engine.connect() as own:
            return await own.scalar(
                sa.text("SELECT title FROM tickets WHERE id = :n"), {"n": number}
            )

    seen.note("side by side", await asyncio.gather(*map(one, range(1, 20))))
    await engine.dispose()
