"""Derives the decisions of a file again, from the policies in the file. Knows lines;
`policies.trail.recompute` knows decisions, and `documents` which documents are missing.
"""

import hashlib
from collections.abc import Iterator

import orjson

from control_api.verifier.file.documents import Documents
from control_api.verifier.outcome import NotDerived
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import BadLine, parse_line, plain_entry
from policies.trail.log_file.lines import PolicyLine
from policies.trail.recompute.facts import cited_digests
from policies.trail.recompute.recomputer import RecomputeCounts, Recomputer

MOST_BYTES = 32 * 1024 * 1024
"""Of documents that are held at the same time."""


class Derivation:
    """One walk over verified lines, whose documents `documents` has seen."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._bodies: dict[str, bytes] = {}
        self._bytes = 0
        self._recomputer = Recomputer(self._bodies.get)
        self.unheld = 0
        """Decisions that could not be derived since a document was dropped to bound memory."""

    @property
    def counts(self) -> RecomputeCounts:
        return self._recomputer.counts

    def feed(self, chunk: bytes, with_openings: bool) -> Iterator[Finding]:
        """The findings of a chunk of lines whose entries were verified."""
        for line in chunk.split(b"\n"):
            parts = plain_entry(line, with_openings)
            if parts is None:
                self._hold(line)
                continue
            entry = orjson.loads(parts.entry)
            before = self.counts.restored
            found = self._recomputer.feed(entry)
            if found and found.reason is not Reason.DOCUMENT_MISSING:
                yield found._replace(message=f"seq {found.seq}: {found.message}")
            elif found or self.counts.restored > before:
                stands = self._documents.stands_before
                self.unheld += all(stands(each, entry["seq"]) for each in cited_digests(entry))

    def not_derived(self) -> list[NotDerived]:
        """Decisions that could not be derived although their documents are there."""
        why = "follow a restore of the log, which lost the changes behind their facts"
        count = self.counts.facts_restored
        return [NotDerived(count, why)] if count else []

    def _hold(self, line: bytes) -> None:
        if not line.startswith(b'{"policy":'):
            return
        try:
            document = parse_line(line)
        except BadLine:
            return  # the walk reports it
        assert isinstance(document, PolicyLine)
        body = document.document
        digest = hashlib.sha256(body).hexdigest()
        if digest in self._bodies:
            return
        self._bodies[digest] = body
        self._bytes += len(body)
        while self._bytes > MOST_BYTES and len(self._bodies) > 1:
            oldest = next(iter(self._bodies))
            self._bytes -= len(self._bodies.pop(oldest))
