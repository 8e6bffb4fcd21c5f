"""Parses a JSON body, in the same way for both services (`CONTRACT.md`, Requests). Knows no
schema."""

import json
import re
from typing import Any

import orjson

from policies.ground.errors import Malformed

CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f"
"""The characters that an identifier may not contain, as in a class of characters of a regular
expression."""
_CONTROL = re.compile(f"[{CONTROL_CHARACTERS}]")
MAX_IDENTIFIER = 256


def is_json(content_type: str | None) -> bool:
    """Return whether a `Content-Type` is JSON; an absent one counts as JSON."""
    if content_type is None or content_type == "application/json":
        return True  # nearly every request: no parsing
    media, _, parameters = content_type.partition(";")
    if media.strip().lower() != "application/json":
        return False
    # Exchanged JSON is always UTF-8 (RFC 8259, section 8.1).
    charset = parameters.strip().lower()
    return charset in ("", "charset=utf-8", 'charset="utf-8"')


def parse_object(raw: bytes, content_type: str | None, *, unique: bool) -> dict[str, Any]:
    """Parse the JSON object in `raw`; `Malformed` if it is anything else.

    `unique` also refuses duplicate keys at any depth: of two readers of the same bytes, one may use
    the first value and the other the last.
    """
    if not is_json(content_type):
        raise Malformed(f"content type `{content_type}` is not JSON")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed("the body is not a JSON object")
    if unique:
        # orjson keeps the last of duplicate keys and has no hook, so the standard library reads the
        # body again.
        refuse_duplicates(raw)
    return value


def refuse_duplicates(raw: bytes) -> None:
    """Raise `Malformed` if any object in `raw`, which is valid JSON, has a duplicate key."""
    try:
        json.loads(raw, object_pairs_hook=_refuse_duplicate)
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None


def _refuse_duplicate(pairs: list[tuple[str, Any]]) -> None:
    # Nested objects had their own call of this hook; only this object's names matter here.
    if len(pairs) > 1 and len({name for name, _ in pairs}) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Malformed(f"duplicate key `{name[:64]}` in an object")
            seen.add(name)


def identifier_fault(value: object) -> str | None:
    """Return the fault of an identifier; None if it is valid.

    An identifier is a string of 1 to 256 characters without control characters, stored byte for
    byte.
    """
    if not isinstance(value, str):
        return "must be a string"
    if not 1 <= len(value) <= MAX_IDENTIFIER:
        return f"must have 1 to {MAX_IDENTIFIER} characters, has {len(value)}"
    # `isprintable` first: it is one call in C, and nearly every identifier passes.
    if not value.isprintable() and _CONTROL.search(value):
        return "must not contain control characters"
    return None
