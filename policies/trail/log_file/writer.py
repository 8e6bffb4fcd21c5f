"""Writes an export file: counts its entries, and hashes its bytes for the last line.

Whole pages of entries' lines may be joined elsewhere, such as in a database, as long as they are
what `coding.encode_line` gives. Knows no database and writes nothing itself.
"""

import hashlib

from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.lines import EndLine, Line


class LogFileWriter:
    """One file. The bytes that its methods return follow one another in the file."""

    def __init__(self) -> None:
        self.entries = 0
        self._digest = hashlib.sha256()

    def line(self, line: Line) -> bytes:
        """A line that is not an entry."""
        return self.joined(encode_line(line), 0)

    def joined(self, lines: bytes, entries: int) -> bytes:
        """Whole lines, which hold `entries` entries."""
        self._digest.update(lines)
        self.entries += entries
        return lines

    def end(self) -> bytes:
        """The last line."""
        return encode_line(EndLine(self.entries, self._digest.hexdigest()))
