"""One connection's part of an export: its lines are checked and go into the partial file.

A response that ends without its last line, or with one that does not fit its bytes, is `Broken`:
what arrived of it is kept, and the next connection continues there. Knows no command.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Protocol

from deploy.client.export.partial_file import (
    ENTRIES,
    POLICY,
    CannotContinue,
    PartialFile,
    header_of,
    policy_digest,
)

PIECE = 1024 * 1024
MAX_LINE = 16 * 1024 * 1024
FAULTS = (OSError, EOFError, http.client.HTTPException, zlib.error)
"""What reading a response raises when its connection breaks."""


class Readable(Protocol):
    """A stream of bytes that gives what is there, rather than wait for all that was asked for."""

    def read1(self, size: int, /) -> bytes: ...


class Broken(Exception):
    """the response ended early; the message says how"""


def codings() -> str:
    """`Accept-Encoding`, by what can be decompressed here."""
    return "zstd, gzip;q=0.5" if find_spec("zstandard") else "gzip"


def decoded(response: http.client.HTTPResponse) -> Readable:
    """The response's body without its compression."""
    coding = response.headers.get("Content-Encoding", "")
    if coding == "gzip":
        return gzip.GzipFile(fileobj=response)
    if coding == "zstd":
        from zstandard import ZstdDecompressor  # an extra

        reader: Readable = ZstdDecompressor().stream_reader(response)
        return reader
    return response


class Download:
    """The lines of one response, from `body` into `file`. `progress` is called with the file and
    the bytes of each piece."""

    def __init__(
        self, body: Readable, file: PartialFile, progress: Callable[[PartialFile, int], None]
    ) -> None:
        self._body = body
        self._file = file
        self._progress = progress
        self._received = hashlib.sha256()
        self._entries = 0
        # The last line that arrived, since the response's own last line is not kept.
        self._held = b""
        self._rest = b""

    def run(self, *, continued: bool) -> None:
        """Read the response to its end. `continued` if the file has entries already: then the
        response's own beginning is left out. Raises `Broken` and `CannotContinue`."""
        try:
            if continued:
                self._skip_beginning()
            while piece := self._body.read1(PIECE):
                self._take(piece, continued)
        except FAULTS as error:
            raise Broken(getattr(error, "strerror", None) or str(error) or "cut off") from error
        # Of a whole export, the file has all lines: no need to hash them twice.
        received = self._received if continued else self._file
        self._check_end(received.hexdigest())

    def _skip_beginning(self) -> None:
        """Read up to the first line of the body of the file: header, frontier and a checkpoint at
        just this place are there already, or are not needed."""
        buffer = b""
        while buffer.count(b"\n") < 3:
            piece = self._body.read1(PIECE)
            buffer += piece
            if not piece or len(buffer) > MAX_LINE:
                break
        first, feed, rest = buffer.partition(b"\n")
        if not feed:
            raise Broken("the response ended before its first line")
        self._check_header(header_of(first, "the response"))
        left_out = first + b"\n"
        while rest.startswith((b'{"frontier":', b'{"checkpoint":')):
            line, feed, rest = rest.partition(b"\n")
            left_out += line + feed
        self._received.update(left_out)
        self._take(rest, continued=True)

    def _check_header(self, header: dict[str, Any]) -> None:
        file = self._file
        assert file.header is not None
        if header["log"] != file.header["log"]:
            raise CannotContinue(
                f"`{file.path}` is of log `{file.header['log']}`, and the control API exports "
                f"`{header['log']}`: name another file"
            )
        if header["from"] != file.next_seq or header["to"] != file.header["to"]:
            raise CannotContinue(
                f"entry {file.next_seq} is not there any longer, since retention removed it or the "
                f"log was restored: remove `{file.path}` to export again"
            )

    def _take(self, piece: bytes, continued: bool) -> None:
        complete, feed, rest = piece.rpartition(b"\n")
        if not feed:
            self._rest += rest
            if len(self._rest) > MAX_LINE:
                raise CannotContinue("the response has a line that is too long for an export")
            return
        block = self._rest + complete + feed
        self._rest = rest
        # The last line is held back: it may be the end.
        at = block.rfind(b"\n", 0, -1) + 1
        self._keep(self._held + block[:at], continued)
        self._held = block[at:]

    def _keep(self, lines: bytes, continued: bool) -> None:
        if not lines:
            return
        if continued:
            self._received.update(lines)
        entries = _entries(lines)
        self._entries += entries
        if continued and POLICY in lines:
            lines = self._without_known_policies(lines)
        self._file.add(lines, entries)
        self._progress(self._file, len(lines))

    def _without_known_policies(self, lines: bytes) -> bytes:
        kept = []
        for line in _lines(lines):
            if line.startswith(POLICY):
                digest = policy_digest(line)
                if digest in self._file.policies:
                    continue
                self._file.policies.add(digest)
            kept.append(line)
        return b"".join(kept)

    def _check_end(self, received: str) -> None:
        try:
            end = json.loads(self._held)
            reason = end.get("truncated")
            if reason is not None:
                raise Broken(str(reason))
            if self._rest or end["end"] is not True:
                raise ValueError
        except (ValueError, LookupError, TypeError, AttributeError):
            raise Broken("the response ended without its last line") from None
        if (end["entries"], end["sha256"]) != (self._entries, received):
            raise Broken("the response is not the one whose SHA-256 its last line has")


def _entries(lines: bytes) -> int:
    """How many of these whole lines hold an entry."""
    # Twice as fast as `bytes.count`, which looks at each byte.
    entries, at, find, startswith = 0, 0, lines.find, lines.startswith
    while (end := find(b"\n", at)) >= 0:
        entries += startswith(ENTRIES, at)
        at = end + 1
    return entries


def _lines(block: bytes) -> list[bytes]:
    # Not `splitlines`: it divides lines at other characters too.
    return [line + b"\n" for line in block.split(b"\n")[:-1]]
