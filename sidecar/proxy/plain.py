"""Requests of the plainest form, taken apart without the parser: what nearly every client sends.
Anything else is None here, and the parser's to read.

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
from sidecar.proxy.headers import Head, request_head

LONGEST = 4096
"""The longest head, in bytes, that is read here."""

MOST_FIELDS = 64
"""The most fields of a head that is read here: fewer than a connection takes."""

FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [!-~](?:[ -~]*[!-~])?"
"""The form of a field, without its line end."""

_FIELDS = re.compile(rb"(?:%b\r\n)+\r\n" % FIELD).fullmatch
_LINE = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1").fullmatch
_LENGTH = re.compile(rb"[0-9]{1,9}").fullmatch

NOT_PLAIN = frozenset(
    (b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection")
)
"""What makes a message more than its fields and so many bytes."""


class PlainHead(NamedTuple):
    """A request's fields, on whose behalf they say it is made, and how many bytes follow."""

    head: Head
    who: Attribution
    length: int
    media: str | None


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
        elif lower in NOT_PLAIN:
            return None
        fields.append((name, value))
        names.add(lower)
    return fields if len(names) == len(fields) <= MOST_FIELDS else None
