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
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.headers import RequestHead, sort_request_fields
from sidecar.proxy.messages.framing import check_frame

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


class SimpleHead(NamedTuple):
    """What a request's fields say, without what they hold: this is kept for the next request that
    has the same. `runs` are the parts of the block, from byte to byte, that are forwarded; None
    where they are not forwarded as they stand. `stated` is the value of `Content-Length`, `length`
    what it comes to."""

    who: Attribution
    stated: bytes | None
    length: int
    media: str | None
    runs: tuple[tuple[int, int], ...] | None

    def lines(self, block: bytes) -> bytes:
        """Of the block that this was read from, the lines that are forwarded."""
        runs = self.runs
        assert runs is not None
        if len(runs) == 1:
            begin, end = runs[0]
            return block[begin:end]
        return b"".join([block[begin:end] for begin, end in runs])


def request_line(line: bytes) -> tuple[str, str] | None:
    """Method and target of a request line without its end."""
    found = _LINE(line)
    return None if found is None else (found[1].decode(), found[2].decode())


def request_fields(block: bytes, default: Attribution) -> tuple[SimpleHead, RequestHead] | None:
    """The fields of a request, up to and with the empty line; None too where they are refused:
    a refusal has to be recorded, and that is not done here."""
    fields = _split(block)
    if fields is None:
        return None
    try:
        head = sort_request_fields(fields)
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
    type_ = None if media is None else media.decode("latin-1")
    return SimpleHead(who, head.length, length, type_, _runs(fields, head)), head


def _runs(
    fields: list[tuple[bytes, bytes]], head: RequestHead
) -> tuple[tuple[int, int], ...] | None:
    """Where the forwarded fields stand; None where one was changed, or moved."""
    runs: list[tuple[int, int]] = []
    at, left = 0, iter(head.forward)
    due = next(left, None)
    for field in fields:
        end = at + len(field[0]) + len(field[1]) + 4
        if field is due:
            due = next(left, None)
            if runs and runs[-1][1] == at:
                runs[-1] = runs[-1][0], end
            else:
                runs.append((at, end))
        at = end
    return tuple(runs) if due is None else None


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
