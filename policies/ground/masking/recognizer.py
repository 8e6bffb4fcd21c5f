"""The type of a recognizer, the result of masking, and the normalized text that recognizers read:
all digits as ASCII, every space and dash as one character, nothing invisible.

Cheap tricks of spelling must not get a card number past the recognizers. Look-alike letters are not
covered. Knows none of the recognizers, and imports no library: every service imports this.
"""

import unicodedata
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Masked(NamedTuple):
    """A text after masking, and the sorted labels of what was masked in it."""

    text: str
    labels: tuple[str, ...]


UNREAD = Masked("[UNREAD]", ("UNREAD",))
"""The result for a text that is masked as a whole, because it is too long or was not read in
time."""


_INVISIBLE = "\u200b"
_PART = 4096  # characters; the rarest take some 2 µs each
_CACHE_LIMIT = 4096  # characters; the input is a stranger's, so the cache needs a bound


def _normalize_char(char: str) -> str:
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return str(digit)
    category = unicodedata.category(char)
    # Format characters and combining marks: invisible, or drawn over the digit before them.
    if category in ("Cf", "Mn", "Me"):
        return _INVISIBLE
    if category == "Zs":
        return " "
    # U+2212 is the minus sign, which is no dash to Unicode (category Sm).
    if category == "Pd" or char == "\u2212":
        return "-"
    # Full-width letters and signs. A character that would become several stays as it is: positions
    # must not shift.
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 and plain.isascii() else char


class _Table(dict[int, str]):
    def __missing__(self, code: int) -> str:
        char = chr(code)
        normal = char if char.isascii() else _normalize_char(char)
        if len(self) < _CACHE_LIMIT:
            self[code] = normal
        return normal


_TABLE = _Table()


def normalize(text: str) -> tuple[str, list[int] | None]:
    """Return the normalized text, and the position in `text` of each of its characters. The
    positions are None if all are the same in both texts."""
    if text.isascii():
        return text, None
    return _visible(text.translate(_TABLE))


def normalize_steps(text: str) -> Generator[None, None, tuple[str, list[int] | None]]:
    """Normalize a text as `normalize` does, as a generator that pauses after each part. It returns
    the result."""
    if text.isascii():
        return text, None
    parts: list[str] = []
    for at in range(0, len(text), _PART):
        yield
        parts.append(text[at : at + _PART].translate(_TABLE))
    return _visible("".join(parts))


def _visible(plain: str) -> tuple[str, list[int] | None]:
    if _INVISIBLE not in plain:
        return plain, None
    positions = [position for position, char in enumerate(plain) if char != _INVISIBLE]
    return plain.replace(_INVISIBLE, ""), positions


Span = tuple[int, int]

Found = Span | None
"""One result of a recognizer: a span to mask, or None for a candidate that turned out to be
nothing. Masking may pause after either."""

LONG = 1024
"""The number of characters above which masking may also pause after each search of the whole
text."""


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Finds one kind of personal data, and labels it.

    `likely` is a cheap search; if it finds nothing, `spans` is not called. `spans` finds the spans
    in a normalized text (`normalize`). It must not raise, and its time must be linear in the length
    of the text. It yields after each candidate that takes more than a regular expression to
    examine, and in a `LONG` text after each search.
    """

    label: str
    likely: Callable[[str], object]
    spans: Callable[[str], Iterable[Found]]
