"""What a driver's session is recorded as, so that two sessions can be compared.

A transcript is a list of `[what, value]`; values are plain texts, so that two of them differ where
a user of the driver would see a difference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.postgres_wire import Address

Transcript = list[tuple[str, str]]
Session = Callable[[Address], Transcript]
"""Runs through an address, and returns what it saw."""

# Of `kinds`, without what a driver can't represent.
EVERY_KIND = "SELECT * FROM kinds WHERE id IN (1, 3) ORDER BY id"
ODD_KINDS = "SELECT large, single, double, texts, few, several FROM kinds WHERE id = 2"
TEN_THOUSAND = "SELECT n, label FROM numbers ORDER BY n"
FAILING = {
    "no column": "SELECT nothing FROM tickets",
    "no column, with a hint": "SELECT titel FROM tickets",
    "no table": "SELECT 1 FROM no_such_table",
    "no function": "SELECT no_such_function(1)",
    "syntax": "SELEC 1",
    "division": "SELECT 1 / (id - 1) FROM tickets",
    "cast": "SELECT title::int FROM tickets",
    "out of range": "SELECT 30000::int2 * 2::int2",
    "two rows": "SELECT (SELECT id FROM tickets)",
    "bad text": "SELECT E'\\xff'",
    "bad json": "SELECT '{'::json",
}
"""Statements that fail, by name: while they are read, planned, or in the middle of rows."""


def shown(value: object) -> str:
    """Return a value as text, with its type."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    if isinstance(value, memoryview):
        value = bytes(value)
    return f"{type(value).__name__} {value!s}"


class Recorder:
    """Collects a transcript."""

    def __init__(self) -> None:
        self.transcript: Transcript = []

    def note(self, what: str, value: object) -> None:
        """Add what was seen."""
        self.transcript.append((what, value if isinstance(value, str) else shown(value)))

    def fails(self, what: str, call: Callable[[], Any]) -> None:
        """Add the error of a call that must fail."""
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - each driver has a class of its own
            self.note(what, described(error))
        else:
            self.note(what, f"no error but {result!r}")

    async def fails_async(self, what: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Add the error of a call that must fail."""
        try:
            result = await call()
        except Exception as error:  # noqa: BLE001 - each driver has a class of its own
            self.note(what, described(error))
        else:
            self.note(what, f"no error but {result!r}")


def described(error: BaseException) -> str:
    """Return an error's class, SQLSTATE, message, detail and hint. Its context is left out, since
    a sidecar drops it."""
    inner = getattr(error, "orig", None) or error
    state = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
    message = str(inner)
    if (told := getattr(inner, "diag", None)) is not None and told.message_primary:  # psycopg
        message = f"{told.message_primary} {told.message_detail} {told.message_hint}"
    if state is None and inner.args and isinstance(inner.args[0], dict):  # pg8000
        state, message = inner.args[0].get("C"), str(inner.args[0].get("M"))
    return f"{type(error).__name__} {state}: {message}"
