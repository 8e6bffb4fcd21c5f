"""Pages of a list, and the opaque cursor that says where the next page starts (`CONTRACT.md`,
Responses).

Knows no list in particular.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson

from policies.ground.errors import invalid
from policies.ground.json_body import identifier_fault

Row = TypeVar("Row")
Shown = TypeVar("Shown")
SortKey = tuple[int | str, ...]
"""The values of a row by which its list is sorted."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Shown]):
    """A page of a list; `next` is the sort key of its last row if more rows follow, else None."""

    rows: list[Shown]
    next: SortKey | None = None


@dataclass(frozen=True, slots=True)
class PagedPart(Generic[Shown]):
    """A response that contains a page of a list; `next` as in `Page`."""

    response: Shown
    next: SortKey | None = None


def page_of(
    rows: Sequence[Row],
    limit: int,
    key: Callable[[Row], SortKey],
    show: Callable[[Row], Shown],
) -> Page[Shown]:
    """A page of the first `limit` rows. Callers fetch one more row, to tell whether more follow."""
    shown = rows[:limit]
    last = key(shown[-1]) if len(rows) > limit else None
    return Page([show(row) for row in shown], last)


def write_cursor(key: SortKey) -> str:
    """The cursor after the row with this sort key."""
    # A row keeps its sort key forever, so no row is skipped or repeated if others are written
    # between two pages. A page number or an offset would shift.
    return base64.urlsafe_b64encode(orjson.dumps(key)).rstrip(b"=").decode("ascii")


def read_cursor(text: str, types: tuple[type, ...]) -> SortKey:
    """The sort key in a cursor. Raises `Invalid` if its values are not of these types, in order."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        values = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, orjson.JSONDecodeError):
        values = None
    if (
        not isinstance(values, list)
        or tuple(map(type, values)) != types
        or not all(map(_storable, values))
    ):
        raise invalid(
            ["cursor: must be taken from the previous page's `Link`"],
            "query",
        )
    return tuple(values)


def _storable(value: int | str) -> bool:
    """Whether a query can take the value: a number within 64 bits, text without control
    characters."""
    # A made-up cursor must be answered with a 422, not make the database driver fail.
    if isinstance(value, int):
        return abs(value) < 1 << 62
    return identifier_fault(value) is None
