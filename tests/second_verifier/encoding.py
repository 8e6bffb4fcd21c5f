"""Reads and writes the JSON of entries: RFC 8785 within the profile of the format document. Own
code: it shares nothing with the product, whose encoder could err in the same way as its verifier.
"""

from __future__ import annotations

import json
import re
from typing import Any

LARGEST_INTEGER = 2**53 - 1
DEEPEST = 64

_KEY = re.compile(r"[a-z0-9_.:-]+\Z")
_WORDS = {None: "null", True: "true", False: "false"}
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


class Unreadable(ValueError):
    """The bytes are not JSON text that has an encoding at all."""


def read(raw: bytes) -> Any:
    """The value of JSON text. Raises `Unreadable`. Of a key that occurs twice the last value is
    taken, so what `write` makes of it are other bytes."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def write(value: Any) -> bytes:
    """The one encoding of a value. Raises `Unreadable`: half a surrogate, or an integer of more
    than 53 bits."""
    parts: list[str] = []
    try:
        _write(value, parts)
        return "".join(parts).encode("utf-8")
    except (UnicodeEncodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def within_profile(value: Any, depth: int = 0) -> bool:
    """Whether the value has no float, only allowed keys, and at most 64 levels."""
    if isinstance(value, dict):
        keys = all(_KEY.match(key) for key in value)
        inner = all(within_profile(each, depth + 1) for each in value.values())
        return keys and inner and depth < DEEPEST
    if isinstance(value, list):
        return depth < DEEPEST and all(within_profile(each, depth + 1) for each in value)
    return not isinstance(value, float)


def _constant(word: str) -> Any:
    raise ValueError(f"`{word}` is not JSON")


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(_text(value))
    elif value is None or isinstance(value, bool):
        parts.append(_WORDS[value])
    elif isinstance(value, int):
        if abs(value) > LARGEST_INTEGER:
            raise Unreadable("an integer of more than 53 bits")
        parts.append(str(value))
    elif isinstance(value, float):
        parts.append(repr(value))
    elif isinstance(value, list):
        _write_items(value, parts)
    else:
        _write_members(value, parts)


def _write_items(items: list[Any], parts: list[str]) -> None:
    mark = "["
    for item in items:
        parts.append(mark)
        _write(item, parts)
        mark = ","
    parts.append("]" if items else "[]")


def _write_members(members: dict[str, Any], parts: list[str]) -> None:
    mark = "{"
    for key in sorted(members):  # allowed keys are ASCII, so this order is that of RFC 8785
        parts.append(f"{mark}{_text(key)}:")
        _write(members[key], parts)
        mark = ","
    parts.append("}" if members else "{}")


def _text(value: str) -> str:
    return f'"{_ESCAPED.sub(_escape, value)}"'


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"
