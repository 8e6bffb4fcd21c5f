"""The type of a recognizer. Knows none of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Finds one kind of personal data.

    `likely` is a cheap search; if it finds nothing, `spans` is not called. `spans` finds the spans
    in a normalized text (`normalize.py`). It must not raise, and its time must be linear in the
    length of the text.
    """

    label: str
    likely: Callable[[str], object]
    spans: Callable[[str], Iterable[Span]]
