"""Parts that statements share: chunks of rows, and `INSERT` with a conflict clause. Knows no table.

SQLite and PostgreSQL spell the clause alike, but SQLAlchemy builds it by two classes that share
their methods and no typed base class.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")

CHUNK = 500
"""Rows or names in one statement, because both databases limit its parameters."""


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


def insert_into(table: Table, dialect: Dialect) -> Any:
    """An `INSERT` that can be given an `ON CONFLICT` clause."""
    return sqlite.insert(table) if dialect.name == "sqlite" else postgresql.insert(table)


@lru_cache(maxsize=16)
def insert_if_absent(table: Table, dialect: Dialect) -> Any:
    """Skips a row whose key exists. Of two processes that insert it at once, one has a row count of
    1; the other waits for the first to commit, and has 0."""
    return insert_into(table, dialect).on_conflict_do_nothing()
