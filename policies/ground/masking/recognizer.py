"""The type of a recognizer. Knows none of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Span = tuple[int, int]

Found = Span | None
"""A span, or None for a candidate that turned out to be nothing: a place to pause."""

LONG = 1024
"""In a text with more characters than this, a search of all of it is a place to pause too."""


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Finds one kind of personal data.

    `likely` is a cheap search; if it finds nothing, `spans` is not called. `spans` finds the spans
    in a normalized text (`normalize.py`). It must not raise, and its time must be linear in the
    length of the text. It yields after each candidate that takes more
    than a pattern to examine, and in a `LONG` text after each search.
    """

    label: str
    likely: Callable[[str], object]
    spans: Callable[[str], Iterable[Found]]
