"""Reads a whole export file strictly, in pieces of any size, with bounded memory; and writes one:
counts its entries, and hashes its bytes for the last line.

    reader = LogFileReader()
    for chunk in chunks:
        for line in reader.feed(chunk): ...     every line, the header first
    reader.finish()                             the file was complete

Checks what belongs to the file: the form and order of its lines, their length, the number of
entries, and the SHA-256 of its last line. Verifies no entry, tree or signature. Whole pages of
entries' lines may be joined elsewhere, such as in a database, as long as they are what
`coding.encode_line` gives. Opens no file.
"""

import hashlib
from collections.abc import Iterator, Set

from policies.trail.findings import Reason
from policies.trail.log_file.coding import BadLine, encode_line, parse_line, plain_entry
from policies.trail.log_file.lines import (
    MAX_LINE,
    MAX_OTHER,
    CheckpointLine,
    DamagedLine,
    EndLine,
    EntryLine,
    ErasureLine,
    FrontierLine,
    HeaderLine,
    Line,
    PolicyLine,
    ProofLine,
    PurgeLine,
    TruncatedLine,
)


class BadLogFile(ValueError):
    """the file is not a complete export. `reason` is None if it is not an export at all; `line` is
    the number of the line, from 1"""

    def __init__(self, reason: Reason | None, line: int, message: str) -> None:
        self.reason = reason
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


_BODY = frozenset({EntryLine, DamagedLine, PolicyLine, CheckpointLine})
_LAST: frozenset[type] = frozenset({ErasureLine, EndLine})
_ENDING = _LAST | {PurgeLine}
# INVARIANT: the order of a file's lines. Beyond this table, the frontier is there exactly if the
# file does not begin with the log's first entry, and no entry follows the proof's checkpoint.
_FOLLOWS: dict[type | None, frozenset[type]] = {
    HeaderLine: _BODY | _ENDING | {FrontierLine},
    FrontierLine: _BODY | _ENDING,
    **{each: _BODY | _ENDING | {ProofLine} for each in _BODY},
    ProofLine: frozenset({CheckpointLine}),
    PurgeLine: _LAST,
    ErasureLine: _LAST,
    EndLine: frozenset(),
}
_NAMES: dict[type, str] = {
    HeaderLine: "the header",
    FrontierLine: "the frontier",
    EntryLine: "an entry",
    DamagedLine: "a damaged entry",
    PolicyLine: "a policy",
    CheckpointLine: "a checkpoint",
    ProofLine: "the proof of the last entry",
    PurgeLine: "the `purge` entry",
    ErasureLine: "a later erasure",
    EndLine: "the last line",
    TruncatedLine: "the reason of a truncation",
}


class LogFileReader:
    """Reads one export file, in pieces that are passed to `feed`. After `feed` or `finish` raised
    `BadLogFile`, feed it no more."""

    def __init__(self) -> None:
        self.header: HeaderLine | None = None
        self.entries = 0
        """The number of entries read so far, damaged ones included."""
        self.lines = 0
        """The number of lines read so far."""
        self._digest = hashlib.sha256()
        # The last complete line, not hashed yet: the end's line is not part of what it hashes.
        self._unhashed = b""
        self._rest = b""
        self._last: type | None = None
        self._proved = False
        self._with_openings = True

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that `chunk` completes. Raises `BadLogFile` at the first line that is not
        allowed, after the lines before it were yielded."""
        complete, feed, rest = chunk.rpartition(b"\n")
        if feed:
            block, self._rest = self._rest + complete, rest
            yield from self._block(block)
        else:
            self._rest += rest
        self._check_length(self._rest)

    def finish(self) -> None:
        """Raise `BadLogFile` unless the file ended with a complete `EndLine`. Call it at the end of
        the input."""
        if self.header is None:
            raise self._fault(None, "the file has no complete line", 1)
        if self._last is not EndLine or self._rest:
            raise self._fault(
                Reason.FILE_TRUNCATED,
                f"the file is truncated: it ends after {self.entries} entries without its last "
                "line",
            )

    def _block(self, block: bytes) -> Iterator[Line]:
        """Yield the lines of `block`, which holds whole lines and lacks only the last line feed."""
        self._digest.update(self._unhashed)
        lines = block.split(b"\n")
        self._digest.update(memoryview(block)[: len(block) - len(lines[-1])])
        self._unhashed = lines[-1] + b"\n"
        for place, raw in enumerate(lines):
            # Nearly every line is an entry that follows an entry: its order can't be wrong.
            if self._last is EntryLine and (entry := plain_entry(raw, self._with_openings)):
                self.entries += 1
                self.lines += 1
                yield entry
                continue
            line = self._parse(raw)
            kind = type(line)
            self._check_order(line, kind)
            if kind is EntryLine or kind is DamagedLine:
                self.entries += 1
            elif isinstance(line, EndLine):
                self._check_end(line, last=place == len(lines) - 1)
            self.lines += 1
            self._last = kind
            yield line

    def _parse(self, raw: bytes) -> Line:
        self._check_length(raw)
        try:
            return parse_line(raw, self._with_openings)
        except BadLine as error:
            reason = None if self.header is None else Reason.FILE_MALFORMED
            raise self._fault(reason, str(error), 1) from error

    def _check_length(self, line: bytes) -> None:
        most = MAX_OTHER if self.header is None else MAX_LINE
        if len(line) > most:
            reason = None if self.header is None else Reason.FILE_MALFORMED
            raise self._fault(reason, f"the line is longer than {most} bytes", 1)

    def _check_order(self, line: Line, kind: type) -> None:
        header, last = self.header, self._last
        if header is None:
            if not isinstance(line, HeaderLine):
                raise self._fault(None, "the first line is not an export's header", 1)
            self.header, self._with_openings = line, line.with_openings
            return
        if isinstance(line, TruncatedLine) and last is not EndLine:
            raise self._fault(Reason.FILE_TRUNCATED, f"the export ended early: {line.reason}", 1)
        allowed: Set[type] = _FOLLOWS[last]
        if last is HeaderLine:
            # A part without the tree before it could not be verified.
            allowed = {FrontierLine} if header.first else allowed - {FrontierLine}
        elif self._proved and last is CheckpointLine:
            allowed = _ENDING
        if kind not in allowed:
            assert last is not None
            raise self._fault(
                Reason.FILE_MALFORMED, f"{_NAMES[kind]} may not follow {_NAMES[last]}", 1
            )
        if isinstance(line, FrontierLine) and not _fits(line, header.first):
            raise self._fault(
                Reason.FILE_MALFORMED, f"the frontier is not one of {header.first} entries", 1
            )
        self._proved = kind is ProofLine or self._proved

    def _check_end(self, line: EndLine, *, last: bool) -> None:
        if not last:
            raise self._fault(Reason.FILE_MALFORMED, "more lines follow the last one", 2)
        if line.entries != self.entries:
            raise self._fault(
                Reason.FILE_DIGEST_MISMATCH,
                f"the last line counts {line.entries} entries; the file has {self.entries}",
                1,
            )
        if line.sha256 != self._digest.hexdigest():
            raise self._fault(
                Reason.FILE_DIGEST_MISMATCH,
                "the file is not the one whose SHA-256 its last line has",
                1,
            )

    def _fault(self, reason: Reason | None, message: str, ahead: int = 0) -> BadLogFile:
        return BadLogFile(reason, self.lines + ahead, message)


def _fits(frontier: FrontierLine, size: int) -> bool:
    return frontier.size == size and len(frontier.hashes) == size.bit_count()


class LogFileWriter:
    """Writes one export file: returns the bytes of each part, counts entries, and hashes what it
    returned. The caller writes the returned bytes one after the other."""

    def __init__(self) -> None:
        self.entries = 0
        self._digest = hashlib.sha256()

    def line(self, line: Line) -> bytes:
        """Return the bytes of a line that is not an entry."""
        return self.joined(encode_line(line), 0)

    def joined(self, lines: bytes, entries: int) -> bytes:
        """Take in `lines`, the bytes of whole lines that hold `entries` entries, and return them
        unchanged."""
        self._digest.update(lines)
        self.entries += entries
        return lines

    def end(self) -> bytes:
        """Return the bytes of the file's last line."""
        return encode_line(EndLine(self.entries, self._digest.hexdigest()))
