"""The kinds of columns, keys and indexes from which all tables are built. Knows no table.

INVARIANT: every primary key and every unique constraint leads with `tenant_id`, and no foreign key
crosses tenants, so that the schema can be distributed by tenant. Times are microseconds since 1970
UTC. JSON is stored as the canonical bytes that were evaluated or hashed, never as a database's JSON
type, which would change them.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import SchemaItem

# The migrations use the same names: a test compares the two schemas to the letter.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def table(name: str, *items: SchemaItem, key: tuple[str, ...] = (), **options: Any) -> Table:
    """A table whose first column, and first part of the primary key, is the tenant."""
    primary_key = PrimaryKeyConstraint("tenant_id", *key)
    return Table(name, metadata, string("tenant_id"), *items, primary_key, **options)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    # SQLAlchemy takes the condition once per dialect.
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def string(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def ordered_string(name: str) -> Column[str]:
    """A string that sorts by code point, whatever the database's default collation is."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def string_or_null(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def integer(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, autoincrement=False)


def small_integer(name: str) -> Column[int]:
    return Column(name, SmallInteger, nullable=False, autoincrement=False)


def small_integers_or_null(name: str) -> Column[list[int]]:
    """An array on PostgreSQL. SQLite has none: the column stays NULL there."""
    numbers = postgresql.ARRAY(SmallInteger).with_variant(LargeBinary(), "sqlite")
    return Column(name, numbers, nullable=True)


def integer_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True, autoincrement=False)


def integer_with_default(name: str, default: int) -> Column[int]:
    """For a column that a later migration added: existing rows get the default."""
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def timestamp(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def timestamp_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def boolean(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def boolean_or_null(name: str) -> Column[Any]:
    return Column(name, Boolean, nullable=True)


def binary(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def binary_or_null(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=True)


def tenant_foreign_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"])
