"""Helpers of all queries: a table's columns without the tenant, a row's values, and pages."""

from dataclasses import fields
from typing import Any

from sqlalchemy import Column, Select, Table, tuple_

Position = tuple[Any, ...]
"""Identifies the last row of a page: the time when it was created, and its id."""


def columns_of(table: Table) -> list[Column[Any]]:
    """Every column except the tenant's, in order."""
    return [column for column in table.c if column.name != "tenant_id"]


def values_of(row: Any) -> dict[str, Any]:
    """The fields of a dataclass, by name; the table's columns have the same names."""
    # `asdict` would copy the values, and turn nested dataclasses into dicts.
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
        # Compare both columns as one row value: rows of the same microsecond are then neither
        # skipped nor repeated, and the index on both columns serves the query.
        query = query.where(tuple_(created_at, row_id) < after)
    return query.order_by(created_at.desc(), row_id.desc()).limit(limit)
