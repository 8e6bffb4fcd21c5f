"""The file of an export while it is incomplete: `FILE.part`.

Each connection adds lines to it. After a break it is read once, what follows its last entry is cut
off, and the next connection continues there. It becomes `FILE` only when it is complete and on
disk. Knows the lines of `sluice-log/1` that matter for this, and no HTTP.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

ENTRIES = (b'{"entry":', b'{"damaged":')
POLICY = b'{"policy":'
FORMAT = "sluice-log/1"
READ = 1024 * 1024


class CannotContinue(Exception):
    """the partial file can't be continued; the message says why"""


class PartialFile:
    """The part of an export that has arrived. `header` is None before its first line; `next_seq` is
    the first entry that is missing."""

    def __init__(self, path: Path) -> None:
        """Opens the file, and cuts off what follows its last entry. Raises `CannotContinue` if it
        is not the beginning of an export, and `OSError`."""
        self.path = path
        self.header: dict[str, Any] | None = None
        self.entries = 0
        self.next_seq = 0
        self.policies = set[bytes]()
        """The SHA-256 of the documents that it has."""
        self._digest = hashlib.sha256()
        self._file = open_private(path)
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def add(self, lines: bytes, entries: int) -> None:
        """Add whole lines, with so many entries among them. Raises `OSError`."""
        if self.header is None:
            self.header = header_of(lines.partition(b"\n")[0], str(self.path))
        self._digest.update(lines)
        self._file.write(lines)
        self.entries += entries

    def hexdigest(self) -> str:
        """The SHA-256 of what it holds, in hex."""
        return self._digest.hexdigest()

    def complete(self, path: Path) -> None:
        """Write the last line, and give the file its name. Raises `OSError`."""
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
        """Where the last entry to keep ends, and its line."""
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
    """The file, made if absent, to read and to add to. Only its owner may read it: it holds
    personal data. Raises `OSError`."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.fchmod(handle, 0o600)  # one that an earlier version began
        return os.fdopen(handle, "ab+")
    except BaseException:
        os.close(handle)
        raise


def header_of(line: bytes, where: str) -> dict[str, Any]:
    """The header in a file's first line. Raises `CannotContinue` if it is not one."""
    try:
        header: dict[str, Any] = json.loads(line)
        if header["format"] == FORMAT and {"log", "from", "to", "openings"} <= header.keys():
            return header
    except (ValueError, LookupError, TypeError):
        pass
    raise CannotContinue(f"`{where}` does not begin with the header of an export (`{FORMAT}`)")


def policy_digest(line: bytes) -> bytes:
    """The digest of the document on a line, which ends with `}` and a line feed."""
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
