"""Lists in parts: a page, and the opaque cursor that says where it goes on (contract, section 1).

A cursor is the sort key of the last row that was shown, and rows keep their key for ever: so no row
is skipped or repeated, whatever is written meanwhile. Knows no list in particular.
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
Place = tuple[int | str, ...]
"""The sort key of a row."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Shown]):
    """A part of a list; `next` is the place of its last row where more follow."""

    rows: list[Shown]
    next: Place | None = None


@dataclass(frozen=True, slots=True)
class Part(Generic[Shown]):
    """An answer with a list in it, of which it holds a part; `next` as of a page."""

    answer: Shown
    next: Place | None = None


def page_of(
    rows: Sequence[Row],
    limit: int,
    place: Callable[[Row], Place],
    show: Callable[[Row], Shown],
) -> Page[Shown]:
    """Of up to `limit + 1` rows the first `limit`; the one too many says that more follow."""
    shown = rows[:limit]
    following = place(shown[-1]) if len(rows) > limit else None
    return Page([show(row) for row in shown], following)


def write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(place)).rstrip(b"=").decode("ascii")


def read_cursor(text: str, kinds: tuple[type, ...]) -> Place:
    """The reverse of `write_cursor`; `Invalid` where the values are not of these kinds."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        values = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, orjson.JSONDecodeError):
        values = None
    if (
        not isinstance(values, list)
        or tuple(map(type, values)) != kinds
        or not all(map(_sound, values))
    ):
        raise invalid(["cursor: is not one that this service made"], "query")
    return tuple(values)


def _sound(value: int | str) -> bool:
    """Whether a database takes it: no number beyond 64 bits, no control character."""
    if isinstance(value, int):
        return abs(value) < 1 << 62
    return identifier_fault(value) is None
