"""Reading a JSON body the one way both services do (contract, section 1). Knows no schema."""

import json
import re
from typing import Any

import orjson

from policies.ground.errors import Malformed

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MAX_IDENTIFIER = 256


def is_json(content_type: str | None) -> bool:
    """Whether a `Content-Type` names JSON; an absent one is taken as JSON."""
    if content_type is None or content_type == "application/json":
        return True
    media, _, parameters = content_type.partition(";")
    if media.strip().lower() != "application/json":
        return False
    charset = parameters.strip().lower()
    return charset in ("", "charset=utf-8", 'charset="utf-8"')


def parse_object(raw: bytes, content_type: str | None, *, unique: bool) -> dict[str, Any]:
    """The JSON object in `raw`; `Malformed` where there is none.

    `unique` also refuses a duplicate key at any depth: of two readers of the same bytes one may
    take the first and the other the last.
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
        refuse_duplicates(raw)
    return value


def refuse_duplicates(raw: bytes) -> None:
    """`Malformed` where an object in `raw`, which is JSON, has a key twice at any depth."""
    try:
        json.loads(raw, object_pairs_hook=_once)
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> None:
    # The members' values were judged by their own call of this hook; only the names matter here.
    if len(pairs) > 1 and len({name for name, _ in pairs}) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Malformed(f"the key `{name[:64]}` stands twice in one object")
            seen.add(name)


def identifier_fault(value: object) -> str | None:
    """What is wrong with an identifier, or None: a string of 1 to 256 characters without control
    characters, kept byte for byte."""
    if not isinstance(value, str):
        return "must be a string"
    if not 1 <= len(value) <= MAX_IDENTIFIER:
        return f"must have 1 to {MAX_IDENTIFIER} characters, has {len(value)}"
    if not value.isprintable() and _CONTROL.search(value):
        return "must not contain control characters"
    return None
