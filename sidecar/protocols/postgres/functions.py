"""Judges the functions, operators and types that a statement names.

A text doesn't say which function the server will call: an unqualified name is looked up in the
schemas of `search_path`, by the types of its arguments. So a verdict of `BUILT_IN` holds only if
the server has no namesake outside `pg_catalog`, and one of `EXTENSION` only if the extension owns
all namesakes. `Statement` has the names, so that the session can ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from policies.definitions.wildcard import Matcher, matcher
from sidecar.protocols.postgres import extension_tables
from sidecar.protocols.postgres.function_tables import (
    CLOSED_FUNCTIONS,
    OPEN_FUNCTIONS,
    OPEN_IN_INFORMATION_SCHEMA,
    OPERATORS,
    TYPES,
)
from sidecar.protocols.postgres.names import INFORMATION_SCHEMA, QualifiedName

# These change a source, like `INSERT`.
WRITING_FUNCTIONS = frozenset({"nextval"})
# Open, or closed, by their arguments (`calls.py`).
JUDGED_BY_ARGUMENTS = frozenset({"set_config", "current_setting", "ts_rewrite"})
# Of extensions, in any schema: not even `functions.allow` opens them, as one pattern of it may
# cover a whole schema.
_RUN_QUERIES = ("dblink", "crosstab", "connectby")


class Origin(Enum):
    """Whose code a name stands for."""

    BUILT_IN = "built-in"
    EXTENSION = "extension"
    """One of the extensions of `extension_tables`."""
    ALLOWED = "allowed"
    """Foreign code that the operator allows (`functions.allow`)."""
    FOREIGN = "foreign"


class FunctionVerdict(NamedTuple):
    """Whether a function may be called."""

    origin: Origin
    closed: str | None = None
    """Why the function may not be called; None if it may."""


class AllowedFunctions:
    """The patterns of `functions.allow`, such as `public.search_articles` or `api.*`."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._whole: Matcher = matcher(patterns)
        self._last: Matcher = matcher(pattern.rpartition(".")[2] for pattern in patterns)

    def allows(self, name: QualifiedName) -> bool:
        """Return whether the patterns cover a name. Of a name without a schema only the last part
        is compared, so its schema is still to be verified."""
        return self._last(name.name) if name.schema is None else self._whole(str(name))


def judge_function(name: QualifiedName, allowed: AllowedFunctions) -> FunctionVerdict:
    """Return whose code a function is, and whether a statement may call it."""
    if name.name.startswith(_RUN_QUERIES):
        return FunctionVerdict(Origin.FOREIGN, f"the function `{name}` runs a query of its own")
    if name.may_be_built_in:
        if name.name in OPEN_FUNCTIONS or name.name in TYPES or name.name in WRITING_FUNCTIONS:
            return FunctionVerdict(Origin.BUILT_IN)
        if name.name in JUDGED_BY_ARGUMENTS:
            return FunctionVerdict(Origin.BUILT_IN)
        reason = _closed_reason(name.name)
        if reason is not None:
            return FunctionVerdict(Origin.BUILT_IN, f"the function `{name}` {reason}")
    elif name.schema == INFORMATION_SCHEMA and name.name in OPEN_IN_INFORMATION_SCHEMA:
        return FunctionVerdict(Origin.BUILT_IN)
    # Before the extensions': what the operator allows needs no extension that owns it.
    if allowed.allows(name):
        return FunctionVerdict(Origin.ALLOWED)
    if name.name in extension_tables.FUNCTIONS:
        return FunctionVerdict(Origin.EXTENSION)
    return FunctionVerdict(
        Origin.FOREIGN,
        f"the function `{name}` is not known; if it is yours, `functions.allow` can name it",
    )


def judge_operator(name: QualifiedName) -> Origin:
    """Return whose code an operator is: `BUILT_IN`, `EXTENSION` or `FOREIGN`."""
    if name.may_be_built_in and name.name in OPERATORS:
        return Origin.BUILT_IN
    return Origin.EXTENSION if name.name in extension_tables.OPERATORS else Origin.FOREIGN


def judge_type(name: QualifiedName) -> Origin:
    """Return whose code converts to a type: `BUILT_IN`, `EXTENSION` or `FOREIGN`."""
    if name.may_be_built_in and name.name.removeprefix("_") in TYPES:
        return Origin.BUILT_IN
    return Origin.EXTENSION if name.name in extension_tables.TYPES else Origin.FOREIGN


_CLOSED: tuple[tuple[str, Matcher], ...] = tuple(
    (reason, matcher(patterns.split())) for reason, patterns in CLOSED_FUNCTIONS.items()
)


def _closed_reason(name: str) -> str | None:
    """Return why a built-in function is closed; None if it is not listed."""
    return next((reason for reason, covers in _CLOSED if covers(name)), None)
