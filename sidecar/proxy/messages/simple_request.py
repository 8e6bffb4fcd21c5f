"""Reads requests of the simplest form without the parser. Nearly every client sends them; for any
other form these functions return None, and the parser reads it.

INVARIANT: this reads a request exactly as the parser would. One space after the colon, no other
white space around a value, ASCII, every field once, no transfer coding: nothing in it could be read
in two ways.

Pure. Checks no field itself: `headers.py`, `framing.py` and `attribution.py` do, as for any other
request.
"""

import re
from typing import NamedTuple

from aiohttp import HttpVersion11

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.headers import RequestHead, sort_request_fields
from sidecar.proxy.messages.framing import check_frame

LONGEST = 4096
"""The longest head that is read here, in bytes."""

MOST_FIELDS = 64
"""The most fields of a head that is read here: fewer than a connection accepts."""

FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [!-~](?:[ -~]*[!-~])?"
"""The form of a field, without its line end."""

_FIELDS = re.compile(rb"(?:%b\r\n)+\r\n" % FIELD).fullmatch
_LINE = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1").fullmatch
_LENGTH = re.compile(rb"[0-9]{1,9}").fullmatch

SPECIAL_FIELDS = frozenset(
    (b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection")
)
"""Fields that make a message more than a head and a number of bytes."""


class SimpleHead(NamedTuple):
    """What a request's fields mean. It is cached for the next request with the same fields, so of
    the forwarded values it holds only the media type. `runs` are the ranges of bytes in the block
    that are forwarded; None if the fields can't be forwarded as they are. `stated` is the value of
    `Content-Length`, `length` the number."""

    who: Attribution
    stated: bytes | None
    length: int
    media: str | None
    runs: tuple[tuple[int, int], ...] | None

    def lines(self, block: bytes) -> bytes:
        """The forwarded lines of `block`, which must equal the one that this was read from."""
        runs = self.runs
        assert runs is not None
        if len(runs) == 1:
            begin, end = runs[0]
            return block[begin:end]
        return b"".join([block[begin:end] for begin, end in runs])


def parse_request_line(line: bytes) -> tuple[str, str] | None:
    """The method and target of a request line, which is passed without its line end."""
    found = _LINE(line)
    return None if found is None else (found[1].decode(), found[2].decode())


def parse_request_fields(
    block: bytes, default: Attribution
) -> tuple[SimpleHead, RequestHead] | None:
    """Reads the fields of a request, up to and including the empty line. Also returns None for
    fields that are refused: the slow path refuses them again, and records it."""
    fields = _split(block)
    if fields is None:
        return None
    try:
        head = sort_request_fields(fields)
        # `_LINE` admits only GET and POST in HTTP/1.1, and the check treats both alike.
        check_frame("GET", HttpVersion11, head)
        who = attribution(head, default)
        media = head.one(b"content-type")
    except Malformed:
        return None
    if head.length is not None and not _LENGTH(head.length):
        return None
    # An encoded body can't be inspected. The slow path knows whether the route needs that.
    if b"content-encoding" in head.read:
        return None
    length = 0 if head.length is None else int(head.length)
    type_ = None if media is None else media.decode("latin-1")
    return SimpleHead(who, head.length, length, type_, _runs(fields, head)), head


def _runs(
    fields: list[tuple[bytes, bytes]], head: RequestHead
) -> tuple[tuple[int, int], ...] | None:
    """The ranges of the forwarded fields; None if a field was changed or moved."""
    runs: list[tuple[int, int]] = []
    at, remaining = 0, iter(head.forward)
    expected = next(remaining, None)
    for field in fields:
        # 4 bytes more than name and value: the colon, the space and the line end.
        end = at + len(field[0]) + len(field[1]) + 4
        # By identity: `head.forward` holds the same objects, as long as they are unchanged.
        if field is expected:
            expected = next(remaining, None)
            if runs and runs[-1][1] == at:
                runs[-1] = runs[-1][0], end
            else:
                runs.append((at, end))
        at = end
    return tuple(runs) if expected is None else None


def _split(block: bytes) -> list[tuple[bytes, bytes]] | None:
    # The length comes first, because the expression walks the whole block.
    if len(block) > LONGEST or not _FIELDS(block):
        return None
    fields = []
    names = set()
    for line in block[:-4].split(b"\r\n"):
        name, _, value = line.partition(b": ")
        lower = name.lower()
        if lower == b"connection":
            # `close` ends the connection, and any other option names a field to drop.
            if value.lower() != b"keep-alive":
                return None
        elif lower in SPECIAL_FIELDS:
            return None
        fields.append((name, value))
        names.add(lower)
    return fields if len(names) == len(fields) <= MOST_FIELDS else None
