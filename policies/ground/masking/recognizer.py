"""What a recogniser is. Knows none of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Finds one kind of personal data.

    `likely` is a cheap search: where it finds nothing, `spans` is not asked. `spans` gives the
    spans in a text whose digits, spaces and dashes are ASCII (`fold.py`); it must not raise, and
    its time must grow with the text's length and no faster.
    """

    label: str
    likely: Callable[[str], object]
    spans: Callable[[str], Iterable[Span]]
