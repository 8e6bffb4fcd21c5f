"""Column types that every table shares. Knows no table.

INVARIANT: every primary key and every unique constraint leads with `tenant_id`, and no foreign key
crosses tenants, so that the schema can be distributed by tenant. Times are microseconds since 1970
UTC. JSON is stored as the canonical bytes that were evaluated or hashed, never as a database's JSON
type, which would change them.
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


def string(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def ordered_string(name: str) -> Column[str]:
    """A string that sorts by code point, whatever the database's default collation."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=False)


def string_or_null(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def integer(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, autoincrement=False)


def integer_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True, autoincrement=False)


def integer_with_default(name: str, default: int) -> Column[int]:
    """An integer that a later migration added: existing rows get the default."""
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def timestamp(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def timestamp_or_null(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def boolean(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def binary(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def binary_or_null(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=True)


def tenant_foreign_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"])
