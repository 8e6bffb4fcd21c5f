"""The plain form of a text, for recognisers: full-width and other digits as ASCII, every space and
dash as one, nothing invisible. Knows where each character of it came from.

Cheap tricks of spelling must not carry a card number past the recognisers; look-alike letters do.
"""

import unicodedata

_GONE = "\u200b"
_MOST = 4096  # characters that are remembered: a stranger chooses which come


def _fold(char: str) -> str:
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return str(digit)
    category = unicodedata.category(char)
    if category in ("Cf", "Mn", "Me"):
        return _GONE
    if category == "Zs":
        return " "
    if category == "Pd" or char == "\u2212":
        return "-"
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 and plain.isascii() else char


class _Folded(dict[int, str]):
    def __missing__(self, code: int) -> str:
        char = chr(code)
        folded = char if char.isascii() else _fold(char)
        if len(self) < _MOST:
            self[code] = folded
        return folded


_FOLDED = _Folded()


def fold(text: str) -> tuple[str, list[int] | None]:
    """The plain form, and for each of its characters the place in `text`; None where they are the
    same places."""
    if text.isascii():
        return text, None
    plain = text.translate(_FOLDED)
    if _GONE not in plain:
        return plain, None
    places = [place for place, char in enumerate(plain) if char != _GONE]
    return plain.replace(_GONE, ""), places
