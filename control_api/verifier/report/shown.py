"""Makes any text from a log safe to show in a page, and its invisible characters visible.

Values come from callers of the service, so they may be written to deceive who reads the page.
"""

import html
import unicodedata

# Letters and marks that show nothing, or only change how others look.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def shown(value: object) -> str:
    """HTML of a value's text. Whatever it contains, it is one isolated run of text: marks of
    direction are shown by their number and don't reorder what is beside them."""
    text = value if isinstance(value, str) else str(value)
    return f"<bdi>{''.join(_piece(each) for each in text)}</bdi>"


def _piece(character: str) -> str:
    if " " <= character <= "~":
        return html.escape(character)
    if _is_hidden(character):
        return f'<b class="mark">U+{ord(character):04X}</b>'
    return character


def _is_hidden(character: str) -> bool:
    category = unicodedata.category(character)
    return (
        category in _HIDDEN
        or category == "Zs"  # any space but the ordinary one
        or character in _BLANK
        or 0xFE00 <= ord(character) <= 0xFE0F
        or 0xE0100 <= ord(character) <= 0xE01EF
    )
