"""Messages of the plainest form, taken apart without the parser: what nearly every client and data
source sends. Anything else is None here, and the parser's to read.

INVARIANT: what is taken apart here the parser takes apart alike. One space after the colon, no
white space at an end, ASCII, every field once, a length and no transfer coding: there is nothing in
it that two readers could read in two ways.

Pure. Judges no field: `headers.py`, `framing.py` and `attribution.py` do, for these as for others.
"""

import re
from typing import NamedTuple

from aiohttp import HttpVersion11

from policies.ground.errors import Malformed
from sidecar.proxy.attribution import Attribution, attribution
from sidecar.proxy.framing import check_frame
from sidecar.proxy.headers import Head, answer_head, request_head

LONGEST = 4096
"""The longest head, in bytes, that is read here."""

MOST_FIELDS = 64
"""The most fields of a head that is read here: fewer than a connection takes."""

_FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [!-~](?:[ -~]*[!-~])?\r\n"
_FIELDS = re.compile(rb"(?:%b)+\r\n" % _FIELD).fullmatch
_LINE = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1").fullmatch
_ANSWER = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([!-~](?:[ -~]*[!-~])?)\r\n").match
_LENGTH = re.compile(rb"[0-9]{1,9}").fullmatch

# What makes a message more than its fields and so many bytes.
_NOT_PLAIN = frozenset(
    (b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection")
)
_NO_BODY = frozenset((204, 205, 304))


class PlainHead(NamedTuple):
    """A request's fields, on whose behalf they say it is made, and how many bytes follow."""

    head: Head
    who: Attribution
    length: int
    media: str | None


class PlainAnswer(NamedTuple):
    """A whole answer: `lines` are the fields to pass on, each with its line end."""

    status: int
    reason: bytes
    lines: bytes
    body: bytes


def request_line(line: bytes) -> tuple[str, str] | None:
    """Method and target of a request line without its end."""
    found = _LINE(line)
    return None if found is None else (found[1].decode(), found[2].decode())


def request_fields(block: bytes, default: Attribution) -> PlainHead | None:
    """The fields of a request, up to and with the empty line; None too where they are refused:
    whoever refuses a request records it, and that is not done here."""
    fields = _split(block)
    if fields is None:
        return None
    try:
        head = request_head(fields)
        check_frame("GET", HttpVersion11, head)
        who = attribution(head, default)
        media = head.one(b"content-type")
    except Malformed:
        return None
    if head.length is not None and not _LENGTH(head.length):
        return None
    if b"content-encoding" in head.read:
        return None
    length = 0 if head.length is None else int(head.length)
    return PlainHead(head, who, length, None if media is None else media.decode("latin-1"))


def answer(data: bytes) -> PlainAnswer | None:
    """The answer in `data` where that is one whole answer that has a body and its length."""
    found = _ANSWER(data)
    if found is None:
        return None
    start, end = found.end(), data.find(b"\r\n\r\n", found.end() - 2) + 4
    status = int(found[1])
    if end < 4 or end - start > LONGEST or status in _NO_BODY:
        return None
    fields = _split(data[start:end])
    if fields is None:
        return None
    head = answer_head(fields)
    if len(head.lengths) != 1 or not _LENGTH(head.lengths[0]):
        return None
    if len(data) - end != int(head.lengths[0]):
        return None
    lines = b"".join([b"%b: %b\r\n" % field for field in head.forward])
    return PlainAnswer(status, found[2], lines, data[end:])


def _split(block: bytes) -> list[tuple[bytes, bytes]] | None:
    if len(block) > LONGEST or not _FIELDS(block):
        return None
    fields = []
    names = set()
    for line in block[:-4].split(b"\r\n"):
        name, _, value = line.partition(b": ")
        lower = name.lower()
        if lower == b"connection":
            if value.lower() != b"keep-alive":
                return None
        elif lower in _NOT_PLAIN:
            return None
        fields.append((name, value))
        names.add(lower)
    return fields if len(names) == len(fields) <= MOST_FIELDS else None
