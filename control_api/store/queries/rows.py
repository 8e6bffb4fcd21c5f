"""What the queries share: a table's columns without the tenant, a row's values, and pages."""

from dataclasses import fields
from typing import Any

from sqlalchemy import Column, Select, Table, tuple_

Position = tuple[Any, ...]
"""The last row of a page: when it was created, and its id."""


def columns_of(table: Table) -> list[Column[Any]]:
    """Every column but the tenant, in order."""
    return [column for column in table.c if column.name != "tenant_id"]


def values_of(row: Any) -> dict[str, Any]:
    """The fields of a dataclass that are named like the table's columns. Not `asdict`, which would
    copy what they hold."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def newest_first(
    query: Select[Any],
    created_at: Column[Any],
    row_id: Column[Any],
    after: Position | None,
    limit: int,
) -> Select[Any]:
    """A page of `query`'s rows: the newest after the position `after`, if one is given."""
    if after is not None:
        # Compared as a row value, so that rows of the same microsecond are neither skipped nor
        # repeated, and the index on both columns serves it.
        query = query.where(tuple_(created_at, row_id) < after)
    return query.order_by(created_at.desc(), row_id.desc()).limit(limit)
