"""Reads responses of the simplest form without the parser: a status line, fields with one space
after the colon, a length, and all of the body. For any other form it returns None, and the parser
reads it. The invariant of `simple_request.py` holds here too.

A data source sends the same lines over and over, so the meaning of a line is cached, for a bounded
number of short ones. Otherwise pure.
"""

import re
from enum import Enum
from typing import NamedTuple

from sidecar.http.headers import sort_response_fields
from sidecar.proxy.messages.simple_request import FIELD, LONGEST, MOST_FIELDS, SPECIAL_FIELDS

_CACHE_ENTRIES = 2048
_LONGEST_CACHED = 256

_CACHED_FIELDS = frozenset(
    (
        b"accept-ranges",
        b"access-control-allow-origin",
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-type",
        b"date",
        b"keep-alive",
        b"server",
        b"strict-transport-security",
        b"vary",
        b"via",
        b"x-content-type-options",
        b"x-powered-by",
    )
)
"""The fields whose lines are cached. Any other field may hold a credential."""

_FIELD = re.compile(FIELD).fullmatch
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) [!-~](?:[ -~]*[!-~])?").fullmatch
_NUMBER = re.compile(rb"[0-9]{1,9}").fullmatch
# Statuses without a body: a stated length is left for the parser to judge.
_NO_BODY = frozenset((204, 205, 304))


class SimpleResponse(NamedTuple):
    """A whole response: its status line, and the `fields` to forward, each with its line end."""

    status: int
    line: bytes
    fields: bytes
    body: bytes


class _LineKind(Enum):
    STATUS = 0
    FORWARDED = 1
    DROPPED = 2
    LENGTH = 3
    UNKNOWN = 4


class _Line(NamedTuple):
    kind: _LineKind
    number: int = 0


_line_cache: dict[bytes, _Line] = {}
_UNKNOWN = _Line(_LineKind.UNKNOWN)


def parse_simple_response(data: bytes) -> SimpleResponse | None:
    """The response in `data`, if `data` is exactly one complete response with a length."""
    end = data.find(b"\r\n\r\n")
    if not 0 < end <= LONGEST:
        return None
    lines = data[:end].split(b"\r\n")
    cache = _line_cache
    status = cache.get(lines[0]) or _remember(lines[0], _status(lines[0]))
    if status.kind is not _LineKind.STATUS or len(lines) > MOST_FIELDS:
        return None
    forwarded, length = [], -1
    for line in lines[1:]:
        kind, number = cache.get(line) or _remember(line, _field(line))
        if kind is _LineKind.FORWARDED:
            forwarded.append(line)
        elif kind is _LineKind.LENGTH and length < 0:
            length = number
        # A second length also ends up here: the parser refuses it.
        elif kind is not _LineKind.DROPPED:
            return None
    # Extra bytes belong to no request. The parser notices them, and the connection isn't reused.
    if len(data) != end + 4 + length or length < 0:
        return None
    forwarded.append(b"")
    return SimpleResponse(status.number, lines[0], b"\r\n".join(forwarded), data[end + 4 :])


def _status(line: bytes) -> _Line:
    found = _STATUS_LINE(line)
    if found is None or int(found[1]) in _NO_BODY:
        return _UNKNOWN
    return _Line(_LineKind.STATUS, int(found[1]))


def _field(line: bytes) -> _Line:
    name, _, value = line.partition(b": ")
    if not _FIELD(line) or name.lower() in SPECIAL_FIELDS:
        return _UNKNOWN
    head = sort_response_fields([(name, value)])
    if head.forward:
        return _Line(_LineKind.FORWARDED)
    if head.lengths:
        return _Line(_LineKind.LENGTH, int(value)) if _NUMBER(value) else _UNKNOWN
    if name.lower() == b"connection" and value.lower() != b"keep-alive":
        return _UNKNOWN
    return _Line(_LineKind.DROPPED)


def _remember(line: bytes, meaning: _Line) -> _Line:
    name, colon, _ = line.partition(b":")
    # Other lines may hold a credential, like `Set-Cookie`, so they are read anew each time.
    cacheable = not colon or name.lower() in _CACHED_FIELDS
    if cacheable and len(line) <= _LONGEST_CACHED:
        if len(_line_cache) >= _CACHE_ENTRIES:
            _line_cache.clear()
        _line_cache[line] = meaning
    return meaning
