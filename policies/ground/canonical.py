"""The one encoding of times and of everything that is hashed.

UTF-8 JSON in a profile in which sorted orjson output equals RFC 8785 (`FORMAT.md`, Encoding): keys
ASCII `[a-z0-9_.:-]`; values string, integer of at most 53 bits, boolean, null, array, object; no
floats.

Also parses JSON bodies of requests, in the same way for both services (`CONTRACT.md`, Requests).
"""

import json
import re
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from policies.ground.errors import Malformed

MAX_INTEGER = 2**53 - 1
MAX_DEPTH = 64
"""The most levels of nested arrays and objects in an encoded value, so that any reader's stack can
parse it."""

# RFC 7493 (I-JSON), on which RFC 8785 builds: readers that keep numbers as doubles lose the digits
# of integers beyond 53 bits.
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
# `\Z` and not `$`, here and elsewhere: `$` also matches before a final newline.
_KEY = re.compile(r"[a-z0-9_.:-]+\Z")
_SCALARS = frozenset({str, bool, type(None)})
_CONTAINERS = frozenset({dict, list})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z\Z")


class NotCanonical(ValueError):
    """the value is outside the encoding's profile"""


def encode(value: object) -> bytes:
    """Return `value` as JSON bytes with sorted keys and no white space.

    Does not check keys or refuse floats: callers pass values they built themselves. Use `check` for
    values from elsewhere. An integer beyond 53 bits or a lone surrogate raises
    `orjson.JSONEncodeError` (a `TypeError`).
    """
    return orjson.dumps(value, option=_OPTIONS)


def check(value: object, known: frozenset[str] = frozenset()) -> None:
    """Raise `NotCanonical`, with the path, if a decoded JSON value is outside the encoding's
    profile.

    `known` holds keys that are known to be within the profile, so that they need no check.
    """
    # Almost every value is valid, so the slower check, which names the fault, runs only after the
    # fast one failed.
    if not (type(value) in _CONTAINERS and _is_canonical(value, 0, known)):
        _check(value, "$", 0)


def _is_canonical(container: Any, depth: int, known: frozenset[str]) -> bool:
    """Return whether a list or object of decoded JSON is within the profile."""
    # A fifth of the time of `_check`: it tracks no path, and recurses only into containers.
    if depth > MAX_DEPTH:
        return False
    if type(container) is dict:
        if not known.issuperset(container) and not all(map(_KEY.match, container)):
            return False
        container = container.values()
    for member in container:
        # Compare exact types: they are faster to look up, and `True` is an instance of `int`.
        kind = type(member)
        if kind is str or kind in _SCALARS:
            continue
        if kind is int:
            if not -MAX_INTEGER <= member <= MAX_INTEGER:
                return False
        elif kind not in _CONTAINERS or not _is_canonical(member, depth + 1, known):
            return False
    return True


def _check(value: object, where: str, depth: int) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotCanonical(f"`{where}` is an integer beyond 53 bits")
    elif depth > MAX_DEPTH:
        raise NotCanonical(f"a value is nested more than {MAX_DEPTH} deep")
    elif isinstance(value, dict):
        for key, member in value.items():
            if not _KEY.match(key):
                raise NotCanonical(f"`{where}` has a key outside `[a-z0-9_.:-]`")
            _check(member, f"{where}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            _check(member, f"{where}[{index}]", depth + 1)
    else:
        raise NotCanonical(
            f"`{where}` is a {kind.__name__}, which the log's encoding does not have"
        )


# The last second that was formatted: most calls are within the same one. A single tuple, replaced
# as a whole, so a thread never sees the text of another second.
_second: list[tuple[int, str]] = [(-1, "")]


def rfc3339(micros: int) -> str:
    """Return `micros` since 1970-01-01 UTC as `YYYY-MM-DDTHH:MM:SS.ffffffZ` (`CONTRACT.md`,
    Responses)."""
    seconds, fraction = divmod(micros, 1_000_000)
    last = _second[0]
    if last[0] != seconds:
        moment = _EPOCH + timedelta(seconds=seconds)
        last = _second[0] = (seconds, moment.isoformat()[:19])
    return f"{last[1]}.{fraction:06d}Z"


def micros(text: str) -> int:
    """Parse a time into microseconds: the inverse of `rfc3339`. Any other form raises
    `NotCanonical`."""
    # `fromisoformat` accepts other spellings, such as other offsets. The log has one for each time.
    if not _TIME.match(text):
        raise NotCanonical(f"`{text[:40]}` is not a time of the form YYYY-MM-DDTHH:MM:SS.ffffffZ")
    try:
        return _at_second(text[:19]) + int(text[20:26])
    except ValueError as error:
        raise NotCanonical(f"`{text}` is not a time: {error}") from error


@lru_cache(maxsize=256)
def _at_second(text: str) -> int:
    """Return the microseconds since 1970 UTC of a whole second, such as `2026-01-01T00:00:00`.
    Cached, because a batch's records share few seconds."""
    return (datetime.fromisoformat(f"{text}+00:00") - _EPOCH) // timedelta(microseconds=1)


def b64(raw: bytes) -> str:
    """Encode bytes in base64, in the standard alphabet, with padding."""
    return b2a_base64(raw, newline=False).decode("ascii")


def unb64(text: str) -> bytes:
    """Decode base64: the inverse of `b64`. Text that `b64` would not produce raises
    `NotCanonical`."""
    try:
        raw = a2b_base64(text)
    except ValueError as error:
        raise NotCanonical(f"not base64: {error}") from error
    # The decoder skips characters outside the alphabet; this comparison does not.
    if b64(raw) != text:
        raise NotCanonical("not canonical base64")
    return raw


CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f"
"""The characters that an identifier may not contain, in the syntax of a regular expression's
character class."""
_CONTROL = re.compile(f"[{CONTROL_CHARACTERS}]")
MAX_IDENTIFIER = 256


def is_json(content_type: str | None) -> bool:
    """Return whether the value of a `Content-Type` header means JSON. None, for an absent header,
    counts as JSON."""
    if content_type is None or content_type == "application/json":
        return True  # nearly every request: no parsing
    media, _, parameters = content_type.partition(";")
    if media.strip().lower() != "application/json":
        return False
    # Exchanged JSON is always UTF-8 (RFC 8259, section 8.1).
    charset = parameters.strip().lower()
    return charset in ("", "charset=utf-8", 'charset="utf-8"')


def parse_object(raw: bytes, content_type: str | None, *, unique: bool) -> dict[str, Any]:
    """Parse the JSON object in `raw`, a request's body. Raises `Malformed` if it is anything else.

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
    """Return what is wrong with an identifier; None if it is valid.

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
