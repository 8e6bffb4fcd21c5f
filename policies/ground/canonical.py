"""The one encoding of everything that is hashed, and of time. Knows nothing of what it encodes.

UTF-8 JSON in a profile in which sorted orjson output equals RFC 8785 (`audit-trail.md`,
Encoding): keys ASCII `[a-z0-9_.:-]`; values string, integer of at most 53 bits, boolean, null,
array, object; no floats.
"""

import re
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

MAX_INTEGER = 2**53 - 1
MAX_DEPTH = 64
"""Arrays and objects within each other: what is hashed must be readable by every reader's stack."""

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_KEY = re.compile(r"[a-z0-9_.:-]+\Z")
_SCALARS = frozenset({str, bool, type(None)})
_CONTAINERS = frozenset({dict, list})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z\Z")


class NotCanonical(ValueError):
    """the value lies outside the encoding's profile"""


def encode(value: object) -> bytes:
    """Bytes of `value`, keys sorted, no white space.

    Does not check keys and floats: callers pass what they built themselves; `check` is for what
    came from elsewhere. An integer beyond 53 bits or a lone surrogate raises
    `orjson.JSONEncodeError` (a `TypeError`).
    """
    return orjson.dumps(value, option=_OPTIONS)


def check(value: object, known: frozenset[str] = frozenset()) -> None:
    """Raise `NotCanonical` where a decoded JSON value lies outside the profile, naming where.
    `known` are keys that lie within it: the caller's own, so that most are not looked at again."""
    # What is plainly within is most of what comes; of anything else the slower walk is the judge.
    if not (type(value) in _CONTAINERS and _plain(value, 0, known)):
        _check(value, "$", 0)


def _plain(container: Any, depth: int, known: frozenset[str]) -> bool:
    """Whether a list or an object of decoded JSON lies within the profile. A fifth of `_check`'s
    time: it neither names places nor calls itself for what holds nothing."""
    if depth > MAX_DEPTH:
        return False
    if type(container) is dict:
        if not known.issuperset(container) and not all(map(_KEY.match, container)):
            return False
        container = container.values()
    for member in container:
        kind = type(member)
        if kind is str or kind in _SCALARS:
            continue
        if kind is int:
            if not -MAX_INTEGER <= member <= MAX_INTEGER:
                return False
        elif kind not in _CONTAINERS or not _plain(member, depth + 1, known):
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
        raise NotCanonical(f"`{where}` is a {kind.__name__}, which the log's encoding has not")


# The last second that was formatted: most calls fall into the same one. One tuple, replaced whole,
# so that a thread never sees the text of another second.
_second: list[tuple[int, str]] = [(-1, "")]


def rfc3339(micros: int) -> str:
    """`micros` since 1970-01-01 UTC as `YYYY-MM-DDTHH:MM:SS.ffffffZ` (contract, section 1)."""
    seconds, fraction = divmod(micros, 1_000_000)
    last = _second[0]
    if last[0] != seconds:
        moment = _EPOCH + timedelta(seconds=seconds)
        last = _second[0] = (seconds, moment.isoformat()[:19])
    return f"{last[1]}.{fraction:06d}Z"


def micros(text: str) -> int:
    """The reverse of `rfc3339`; any other form raises `NotCanonical`."""
    if not _TIME.match(text):
        raise NotCanonical(f"`{text[:40]}` is not a time of the form YYYY-MM-DDTHH:MM:SS.ffffffZ")
    try:
        return _at_second(text[:19]) + int(text[20:26])
    except ValueError as error:
        raise NotCanonical(f"`{text}` is not a time: {error}") from error


@lru_cache(maxsize=256)
def _at_second(text: str) -> int:
    """Microseconds; of a batch of records most fall into a few seconds."""
    return (datetime.fromisoformat(f"{text}+00:00") - _EPOCH) // timedelta(microseconds=1)


def b64(raw: bytes) -> str:
    """Standard alphabet, with padding."""
    return b2a_base64(raw, newline=False).decode("ascii")


def unb64(text: str) -> bytes:
    """The reverse of `b64`; anything that `b64` would not have written raises `NotCanonical`."""
    try:
        raw = a2b_base64(text)
    except ValueError as error:
        raise NotCanonical(f"not base64: {error}") from error
    # It passes over what is no base64 at all, and the comparison does not.
    if b64(raw) != text:
        raise NotCanonical("not canonical base64")
    return raw
