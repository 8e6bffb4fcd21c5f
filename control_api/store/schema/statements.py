"""Builds the parts that statements and queries share: chunks of rows, `INSERT` with a conflict
clause, a table's columns without the tenant, a row's values, and pages.

SQLite and PostgreSQL spell the clause alike, but SQLAlchemy has a class for each. The two have the
same methods, but no typed base class, hence the `Any` below.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Dialect, FromClause, Select, Table, bindparam, tuple_
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")

CHUNK = 500
"""The most rows or names in one statement, because both databases limit the number of
parameters."""


_TENANT: ColumnElement[Any] = bindparam("tenant")


def of_tenant(
    table: FromClause, tenant_id: str | ColumnElement[Any] = _TENANT
) -> ColumnElement[bool]:
    """Return the condition that a row of `table` belongs to a tenant. `tenant_id` is the tenant's
    id, or in a join the `tenant_id` column of the other table; by default it is the parameter
    `:tenant`.

    INVARIANT: every statement over tenants' rows has it for each of its tables. A test refuses a
    comparison by hand, in which the other side could be forgotten or be another column.
    """
    of_one: ColumnElement[bool] = table.c.tenant_id == tenant_id
    return of_one


def in_span(table: FromClause) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a tenant's rows whose `seq` is from `:first` up to `:until`
    (exclusive)."""
    seq: ColumnElement[int] = table.c.seq
    return of_tenant(table), seq >= bindparam("first"), seq < bindparam("until")


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


def insert_into(table: Table, dialect: Dialect) -> Any:
    """Return an `INSERT` that can be given an `ON CONFLICT` clause."""
    return sqlite.insert(table) if dialect.name == "sqlite" else postgresql.insert(table)


@lru_cache(maxsize=16)
def insert_if_absent(table: Table, dialect: Dialect) -> Any:
    """Return an `INSERT` that skips a row whose key exists. Of two processes that insert a row at
    the same time, one gets a row count of 1; the other waits for the first to commit, and gets
    0."""
    return insert_into(table, dialect).on_conflict_do_nothing()


Position = tuple[Any, ...]
"""The position of the last row of a page, after which the next page begins: the time when the row
was created, and its id."""


def columns_of(table: Table) -> list[Column[Any]]:
    """Return every column except the tenant's, in order."""
    return [column for column in table.c if column.name != "tenant_id"]


def values_of(row: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name; the table's columns have the same names."""
    # `asdict` would copy the values, and turn nested dataclasses into dicts.
    return {field.name: getattr(row, field.name) for field in fields(row)}


def newest_first(
    query: Select[Any],
    created_at: Column[Any],
    row_id: Column[Any],
    after: Position | None,
    limit: int,
) -> Select[Any]:
    """Return the query for a page of `query`'s rows: the newest `limit` rows, after the position
    `after` if it is given."""
    if after is not None:
        # Compare both columns as one row value: rows of the same microsecond are then neither
        # skipped nor repeated, and the index on both columns serves the query.
        query = query.where(tuple_(created_at, row_id) < after)
    return query.order_by(created_at.desc(), row_id.desc()).limit(limit)
