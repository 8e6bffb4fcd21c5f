"""Derives the decisions of a file again, from the policies in the file. Knows lines;
`policies.trail.recompute` knows decisions."""

import hashlib
from collections.abc import Iterator

import orjson

from policies.trail.findings import Finding
from policies.trail.log_file.coding import BadLine, parse_line, plain_entry
from policies.trail.log_file.lines import PolicyLine
from policies.trail.recompute.recomputer import RecomputeCounts, Recomputer

MOST_BYTES = 32 * 1024 * 1024
"""Of documents that are held at the same time. A decision whose document had to go is counted as
one that can't be derived."""


class Derivation:
    """One walk over verified lines."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}
        self._bytes = 0
        self._recomputer = Recomputer(self._documents.get)

    @property
    def counts(self) -> RecomputeCounts:
        return self._recomputer.counts

    def feed(self, chunk: bytes, with_openings: bool) -> Iterator[Finding]:
        """The findings of a chunk of lines whose entries were verified."""
        for line in chunk.split(b"\n"):
            parts = plain_entry(line, with_openings)
            if parts is None:
                self._other(line)
            elif found := self._recomputer.feed(orjson.loads(parts.entry)):
                yield found._replace(message=f"seq {found.seq}: {found.message}")

    def _other(self, line: bytes) -> None:
        if not line.startswith(b'{"policy":'):
            return
        try:
            document = parse_line(line)
        except BadLine:
            return  # the walk reports it
        assert isinstance(document, PolicyLine)
        body = document.document
        self._documents[hashlib.sha256(body).hexdigest()] = body
        self._bytes += len(body)
        while self._bytes > MOST_BYTES and len(self._documents) > 1:
            oldest = next(iter(self._documents))
            self._bytes -= len(self._documents.pop(oldest))
