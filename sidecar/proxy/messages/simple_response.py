"""Answers of the plainest form, taken apart line by line without the parser: a status line, fields
with one space after the colon, a length, and all of the body. Anything else is None here, and the
parser's to read (see `plain.py`, whose promise holds here too).

A data source sends the same lines over and over: what is made of one is kept, for a bounded number
of small ones. Pure otherwise.
"""

import re
from enum import Enum
from typing import NamedTuple

from sidecar.http.headers import sort_response_fields
from sidecar.proxy.messages.simple_request import FIELD, LONGEST, MOST_FIELDS, NOT_PLAIN

_MOST_KNOWN = 2048
_LONGEST_KNOWN = 256

_KEPT = frozenset(
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
"""The fields of which lines are kept."""

_FIELD = re.compile(FIELD).fullmatch
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) [!-~](?:[ -~]*[!-~])?").fullmatch
_NUMBER = re.compile(rb"[0-9]{1,9}").fullmatch
_NO_BODY = frozenset((204, 205, 304))


class SimpleResponse(NamedTuple):
    """A whole answer: its status line, and the `fields` to pass on, each with its line end."""

    status: int
    line: bytes
    fields: bytes
    body: bytes


class _Kind(Enum):
    STATUS = 0
    PASSES = 1
    ENDS_HERE = 2
    LENGTH = 3
    STRANGE = 4


class _Line(NamedTuple):
    kind: _Kind
    number: int = 0


_known: dict[bytes, _Line] = {}
_STRANGE = _Line(_Kind.STRANGE)


def plain_answer(data: bytes) -> SimpleResponse | None:
    """The answer in `data` where that is one whole answer that has a body and its length."""
    end = data.find(b"\r\n\r\n")
    if not 0 < end <= LONGEST:
        return None
    lines = data[:end].split(b"\r\n")
    known = _known
    status = known.get(lines[0]) or _learnt(lines[0], _status(lines[0]))
    if status.kind is not _Kind.STATUS or len(lines) > MOST_FIELDS:
        return None
    passed, length = [], -1
    for line in lines[1:]:
        kind, number = known.get(line) or _learnt(line, _field(line))
        if kind is _Kind.PASSES:
            passed.append(line)
        elif kind is _Kind.LENGTH and length < 0:
            length = number
        elif kind is not _Kind.ENDS_HERE:
            return None
    if len(data) != end + 4 + length or length < 0:
        return None
    passed.append(b"")
    return SimpleResponse(status.number, lines[0], b"\r\n".join(passed), data[end + 4 :])


def _status(line: bytes) -> _Line:
    found = _STATUS_LINE(line)
    if found is None or int(found[1]) in _NO_BODY:
        return _STRANGE
    return _Line(_Kind.STATUS, int(found[1]))


def _field(line: bytes) -> _Line:
    name, _, value = line.partition(b": ")
    if not _FIELD(line) or name.lower() in NOT_PLAIN:
        return _STRANGE
    head = sort_response_fields([(name, value)])
    if head.forward:
        return _Line(_Kind.PASSES)
    if head.lengths:
        return _Line(_Kind.LENGTH, int(value)) if _NUMBER(value) else _STRANGE
    if name.lower() == b"connection" and value.lower() != b"keep-alive":
        return _STRANGE
    return _Line(_Kind.ENDS_HERE)


def _learnt(line: bytes, made: _Line) -> _Line:
    name, colon, _ = line.partition(b":")
    # Any other line may hold a credential, as `Set-Cookie` does: it is read anew each time.
    kept = not colon or name.lower() in _KEPT
    if kept and len(line) <= _LONGEST_KNOWN:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[line] = made
    return made
