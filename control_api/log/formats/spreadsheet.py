"""CSV (RFC 4180) that a spreadsheet opens without running any of it."""

import re
from collections.abc import Mapping
from typing import Any

from policies.trail.fields import FIELDS

COLUMNS = tuple(
    name for _, name in sorted((each.csv, each.shown) for each in FIELDS if each.csv and each.shown)
)
HEADER = ",".join(COLUMNS).encode()

# https://owasp.org/www-community/attacks/CSV_Injection, and with white space before. Spreadsheets
# of some languages take full-width characters for the usual ones.
_FORMULA = re.compile("[\t\r\n]|\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")


def row(event: Mapping[str, Any], tenant_id: str) -> bytes:  # noqa: ARG001  as every format
    """The event as a line, without its end. Text is always quoted; where a spreadsheet would take
    it for a formula, an apostrophe stands before it. What is null is empty."""
    return ",".join([_cell(event[name]) for name in COLUMNS]).encode()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return "true" if value is True else "false" if value is False else str(value)
    if _FORMULA.match(value):
        value = "'" + value
    return '"' + value.replace('"', '""') + '"'
