"""The type of a recognizer. Knows none of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Span = tuple[int, int]

Found = Span | None
"""A span, or None for a candidate that turned out to be nothing: a place to pause."""


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Finds one kind of personal data.

    `likely` is a cheap search; if it finds nothing, `spans` is not called. `spans` finds the spans
    in a normalized text (`normalize.py`). It must not raise, and its time must be linear in the
    length of the text. It yields after each candidate that took more than a pattern to examine.
    """

    label: str
    likely: Callable[[str], object]
    spans: Callable[[str], Iterable[Found]]
