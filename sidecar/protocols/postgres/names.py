"""The names that a statement has for relations, functions, operators and types."""

from __future__ import annotations

from typing import NamedTuple

CATALOG = "pg_catalog"
INFORMATION_SCHEMA = "information_schema"


class QualifiedName(NamedTuple):
    """A name as the text has it, folded and unquoted by the grammar. The server resolves a name
    without a schema by its `search_path`."""

    schema: str | None
    name: str

    @property
    def may_be_built_in(self) -> bool:
        """True if the name has no schema, or that of the server's own objects."""
        return self.schema is None or self.schema == CATALOG

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def words(text: str) -> frozenset[str]:
    """Return the words of a table that is written as a text."""
    return frozenset(text.split())
