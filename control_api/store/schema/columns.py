"""What columns are made of, the same in every table. Knows no table.

INVARIANT: every primary key and every unique constraint leads with `tenant_id`, and no foreign key
crosses tenants, so that the schema can be distributed by it. Times are microseconds since 1970 UTC.
JSON is stored as the canonical bytes that were decided by or hashed, never as a database's own.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    LargeBinary,
    MetaData,
    Text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def words(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def ordered_words(name: str) -> Column[str]:
    """Words whose order counts: by code point, whatever the database's own collation."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def words_or_null(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, autoincrement=False)


def count_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True, autoincrement=False)


def count_from(name: str, default: int) -> Column[int]:
    """A count that rows of an older schema have not."""
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def time(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def time_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def binary(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def binary_or_null(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=True)


def of_a_tenant() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"])
