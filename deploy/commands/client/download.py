"""Downloads an export of the audit trail, and continues it after a broken connection.

The lines that arrive go into `FILE.part`, which is renamed to `FILE` once it is complete and on
disk. A response raises `Broken` if it ends without its last line, or if its SHA-256 is not the one
that the last line states. The lines that arrived before are kept. The next connection reads the
partial file once, cuts off everything behind its last entry, and continues there.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

from policies.ground.process.api_client import ResponseBody

ENTRIES = (b'{"entry":', b'{"damaged":')
POLICY = b'{"policy":'
FORMAT = "sluice-log/1"
READ = 1024 * 1024


class CannotContinue(Exception):
    """the partial file can't be continued; the message says why"""


class PartialFile:
    """The file that holds the part of an export that has arrived so far. `header` is the export's
    first line, None before it has arrived; `entries` counts the entries; `next_seq` is the number
    of the first entry that is missing."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and cut off everything behind its last entry. Raises
        `CannotContinue` if the file is not the beginning of an export, and `OSError`."""
        self.path = path
        self.header: dict[str, Any] | None = None
        self.entries = 0
        self.next_seq = 0
        self.policies = set[bytes]()
        """The SHA-256 digests of the policy documents in the file: a later response repeats some of
        them."""
        self._digest = hashlib.sha256()
        self._file = open_private(path)
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def add(self, lines: bytes, entries: int) -> None:
        """Append whole lines, `entries` of which hold an entry. Raises `OSError` if they can't be
        written."""
        if self.header is None:
            self.header = header_of(lines.partition(b"\n")[0], str(self.path))
        self._digest.update(lines)
        self._file.write(lines)
        self.entries += entries

    def hexdigest(self) -> str:
        """Return the SHA-256 of all lines in the file so far, in hex."""
        return self._digest.hexdigest()

    def complete(self, path: Path) -> None:
        """Write the export's last line, sync the file to disk, and rename it to `path`. Raises
        `OSError`."""
        end = {"end": True, "entries": self.entries, "sha256": self.hexdigest()}
        self._file.write(json.dumps(end, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        # On disk. If we die before the next step, the next run finds a partial file with an end,
        # cuts that off and asks for the last entry again.
        self.path.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink()

    def _recover(self) -> None:
        kept, last = self._scan()
        self._file.truncate(kept)
        if not kept:
            self.header = None
            return
        self.next_seq = _seq(last, self.path) + 1
        self._file.seek(0)
        while piece := self._file.read(READ):
            self._digest.update(piece)

    def _scan(self) -> tuple[int, bytes]:
        """Return the offset at which the last entry to keep ends, and the line of that entry. Fills
        in `header`, `entries` and `policies` on the way."""
        self._file.seek(0)
        at, kept, last, policies = 0, 0, b"", set[bytes]()
        before, newest = (0, b""), set[bytes]()
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            at += len(line)
            if self.header is None:
                self.header = header_of(line, str(self.path))
            elif line.startswith(ENTRIES):
                before, kept, last = (kept, last), at, line
                self.entries += 1
                self.policies |= newest
                newest, policies = policies, set()
            elif line.startswith(POLICY):
                policies.add(policy_digest(line))
        if self.header is not None and last and _seq(last, self.path) + 1 == self.header["to"]:
            # Only the ending is missing: the proof of the last entry, and erasures behind it. They
            # come with an entry, so this one is asked for again.
            self.entries -= 1
            return before
        self.policies |= newest
        return kept, last


def open_private(path: Path) -> BinaryIO:
    """Open a file for reading and appending, and create it if absent. Only its owner may read it,
    since it holds personal data. Raises `OSError`."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.fchmod(handle, 0o600)  # one that an earlier version began
        return os.fdopen(handle, "ab+")
    except BaseException:
        os.close(handle)
        raise


def header_of(line: bytes, where: str) -> dict[str, Any]:
    """Parse the first line of an export, its header. Raises `CannotContinue`, with the name
    `where`, if the line is not such a header."""
    try:
        header: dict[str, Any] = json.loads(line)
        if header["format"] == FORMAT and {"log", "from", "to", "openings"} <= header.keys():
            return header
    except (ValueError, LookupError, TypeError):
        pass
    raise CannotContinue(f"`{where}` does not begin with the header of an export (`{FORMAT}`)")


def policy_digest(line: bytes) -> bytes:
    """Return the SHA-256 digest of the policy document that a line holds. The line must end with
    `}` and a line feed."""
    return hashlib.sha256(line[len(POLICY) : -2]).digest()


def _seq(line: bytes, path: Path) -> int:
    try:
        wire = json.loads(line)
        seq = (wire.get("entry") or wire["damaged"])["seq"]
        if isinstance(seq, int):
            return seq
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise CannotContinue(
        f"the last entry of `{path}` is damaged, so where to continue is not known; remove the "
        "file to start again"
    )


PIECE = 1024 * 1024
MAX_LINE = 16 * 1024 * 1024
FAULTS = (OSError, EOFError, zlib.error)
"""The errors that decompressing a response raises if its data is damaged or cut off."""


class Readable(Protocol):
    """A stream whose `read1` returns the bytes that have arrived, rather than wait for `size`
    bytes."""

    def read1(self, size: int, /) -> bytes: ...


class Broken(Exception):
    """the response ended early; the message says how"""


def codings() -> str:
    """Return the header `Accept-Encoding`: the compressions that this installation can read. zstd
    is among them only if the optional package `zstandard` is installed."""
    return "zstd, gzip;q=0.5" if find_spec("zstandard") else "gzip"


def decoded(response: ResponseBody) -> Readable:
    """Return the response's body, decompressed."""
    coding = response.headers.get("Content-Encoding", "")
    if coding == "gzip":
        return gzip.GzipFile(fileobj=response)
    if coding == "zstd":
        from zstandard import ZstdDecompressor  # an extra

        reader: Readable = ZstdDecompressor().stream_reader(cast("IO[bytes]", response))
        return reader
    return response


class Download:
    """Receives one response of the export route: copies the lines from `body` into `file`. Calls
    `progress` with the file and the number of bytes after each piece."""

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
        """Read the response to its end and append its lines to the file. `continued` says that the
        file holds entries already; the header lines with which the response begins are then left
        out. Raises `Broken` and `CannotContinue`."""
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
        """Check the response's header, and leave out the lines before its first entry or document.
        The file holds the header already, and does not need the frontier (the hashes of the tree so
        far) and the checkpoint at this place."""
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
    """Return the number of lines that hold an entry. All lines must be whole."""
    # Twice as fast as `bytes.count`, which looks at each byte.
    entries, at, find, startswith = 0, 0, lines.find, lines.startswith
    while (end := find(b"\n", at)) >= 0:
        entries += startswith(ENTRIES, at)
        at = end + 1
    return entries


def _lines(block: bytes) -> list[bytes]:
    # Not `splitlines`: it divides lines at other characters too.
    return [line + b"\n" for line in block.split(b"\n")[:-1]]
