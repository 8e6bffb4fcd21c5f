"""Derives the decisions of a file again, from the policies in the file. Knows lines;
`policies.trail.recompute` knows decisions.

INVARIANT: to leave out or change an unsigned `policy` line never makes a decision pass. Decisions
cite documents by digests that are signed with them, so a document that is missing is a finding, as
is one that no decision cites. Only what is signed too excuses a missing one, and then the result is
incomplete: what precedes the oldest entry was purged, and a decision of that time came late; the
log was restored from a backup; or a version that kept no documents replaced them.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from control_api.verifier.outcome import NotDerived
from policies.ground.canonical import NotCanonical, micros
from policies.trail.entry import time_of
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import BadLine, parse_line, plain_entry
from policies.trail.log_file.lines import PolicyLine
from policies.trail.recompute.facts import cited_digests
from policies.trail.recompute.recomputer import RecomputeCounts, Recomputer

MOST_BYTES = 32 * 1024 * 1024
"""Of documents that are held at the same time."""
MOST_MISSING, MOST_UNCITED = 10_000, 10_000
"""Documents that are remembered until the end: as missing, and as not cited yet."""


class _Missing(NamedTuple):
    """Decisions that cite a missing document: the finding of the first one, and how many they are.
    `latest` is when the last of them was made (microseconds), None if the control API made one
    itself, or if that can't be read. `counted` is the same for the times at which decisions are
    counted. A decision that lacks two documents counts for one of them."""

    first: Finding
    decisions: int
    latest: int | None
    counted: int | None


class Derivation:
    """One walk over verified lines."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}
        self._uncited: dict[str, None] = {}
        self._missing: dict[str, _Missing] = {}
        self._bytes, self._dropped = 0, False
        self._recomputer = Recomputer(self._documents.get)

    @property
    def counts(self) -> RecomputeCounts:
        return self._recomputer.counts

    def feed(self, chunk: bytes, with_openings: bool) -> Iterator[Finding]:
        """The findings of a chunk of lines whose entries were verified."""
        for line in chunk.split(b"\n"):
            parts = plain_entry(line, with_openings)
            if parts is None:
                yield from self._other(line)
                continue
            entry = orjson.loads(parts.entry)
            cited = cited_digests(entry) if entry["kind"] == "decision" else []
            for digest in cited:
                self._uncited.pop(digest, None)
            if found := self._recomputer.feed(entry):
                placed = found._replace(message=f"seq {found.seq}: {found.message}")
                if found.reason is not Reason.DOCUMENT_MISSING:
                    yield placed
                else:
                    yield from self._note_missing(cited, placed, entry)

    def conclude(
        self, cutoff: int, *, restored: bool = False
    ) -> tuple[list[Finding], list[NotDerived]]:
        """What is found at the end of a file, and which decisions could not be derived for a
        reason. What was recorded before `cutoff` (microseconds) was purged; 0 if nothing was.
        `restored` says that a checkpoint is of a later incarnation of the log: the restore may lie
        before this part."""
        findings, late, lost, unheld, unkept = [], 0, self.counts.restored, 0, 0
        until = self._recomputer.unkept_until
        for each in self._missing.values():
            if each.latest is not None and each.latest < cutoff:
                late += each.decisions
            elif restored:
                lost += each.decisions
            elif each.counted is not None and each.counted < until:
                unkept += each.decisions
            elif self._dropped:
                unheld += each.decisions
            else:
                findings.append(each.first)
        findings += map(_uncited, self._uncited)
        reasons = (
            (late, "are older than what retention removed, and came late"),
            (lost, "follow a restore of the log, which lost documents"),
            (
                self.counts.facts_restored,
                "follow a restore of the log, which lost the changes behind their facts",
            ),
            (unkept, "are of a version that kept no documents"),
            (unheld, "cite more documents than can be held"),
        )
        return findings, [NotDerived(count, why) for count, why in reasons if count]

    def _note_missing(
        self, cited: Sequence[str], found: Finding, entry: Mapping[str, Any]
    ) -> Iterator[Finding]:
        """Keep the missing ones of the documents that a decision cites until the end, which tells
        whether there is an excuse."""
        time, counted = _made_at(entry), _counted_at(entry)
        missing = [digest for digest in dict.fromkeys(cited) if not self._has(digest)]
        for place, digest in enumerate(missing):
            message = f"seq {found.seq}: the document `{digest}` that it cites is missing"
            known = self._missing.get(digest)
            if known is not None:
                many = known.decisions + (place == 0)
                times = _later(known.latest, time), _later(known.counted, counted)
                self._missing[digest] = _Missing(known.first, many, *times)
            elif len(self._missing) >= MOST_MISSING:
                yield found._replace(message=message)
            else:
                first = found._replace(message=message)
                self._missing[digest] = _Missing(first, int(place == 0), time, counted)

    def _has(self, digest: str) -> bool:
        return digest in self._documents or self._recomputer.has_document(digest)

    def _other(self, line: bytes) -> Iterator[Finding]:
        if not line.startswith(b'{"policy":'):
            return
        try:
            document = parse_line(line)
        except BadLine:
            return  # the walk reports it
        assert isinstance(document, PolicyLine)
        body = document.document
        digest = hashlib.sha256(body).hexdigest()
        if digest in self._documents:
            return
        self._uncited[digest] = None
        if len(self._uncited) > MOST_UNCITED:
            yield _uncited(digest)
            del self._uncited[digest]
        self._documents[digest] = body
        self._bytes += len(body)
        while self._bytes > MOST_BYTES and len(self._documents) > 1:
            oldest = next(iter(self._documents))
            self._bytes -= len(self._documents.pop(oldest))
            self._dropped = True


def _made_at(entry: Mapping[str, Any]) -> int | None:
    """When an enforcement point made a decision, as it says; None if that is not known."""
    try:
        return micros(entry["src"]["t"]) if "src" in entry else None
    except NotCanonical:
        return None


def _counted_at(entry: Mapping[str, Any]) -> int | None:
    """The time at which a decision is counted; None if it can't be read."""
    try:
        return micros(time_of(entry))
    except NotCanonical:
        return None


def _later(one: int | None, other: int | None) -> int | None:
    """The later of two times; None if one is not known."""
    return None if one is None or other is None else max(one, other)


def _uncited(digest: str) -> Finding:
    message = f"no decision of the file cites the document `{digest}` behind it"
    return Finding(None, Reason.DOCUMENT_MISMATCH, message)
