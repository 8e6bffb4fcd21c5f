"""Verifies the policy documents in an export: each document that a decision cites must be there and
have the cited digest. With `--recompute`, also verifies that the decisions follow from the
documents.

INVARIANT: no unsigned line can hide a change to a document. Decisions cite documents by digests
that are signed with them, so a missing document is a finding, and so is a document that no decision
cites. A missing document is excused only by signed records: the entries before the oldest one were
purged, and a decision of that time arrived late; or the log was restored from a backup; or the
decision was made by a version that kept no documents.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from deploy.commands.verify.pool import Walked
from policies.ground.canonical import NotCanonical, micros
from policies.trail.entry import time_of
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import BadLine, parse_line, plain_entry
from policies.trail.log_file.lines import PolicyLine
from policies.trail.recompute.facts import cited_digests
from policies.trail.recompute.recomputer import RecomputeCounts, Recomputer
from policies.trail.verdict.outcome import NotDerived, Outcome

INCARNATION = "incarnation"
MOST_HELD = 200_000
"""The most documents whose digests are held: a bound on memory, of about 40 MB."""
MOST_MISSING, MOST_UNCITED = 10_000, 10_000
"""The most missing documents, and the most documents that no decision has cited yet, that are held
until the end of the file."""
UNHELD = "cite more documents than can be held"


class _Missing(NamedTuple):
    """The decisions that cite one missing document: the finding about the first of them, and their
    number. `latest` is the latest time at which a sidecar made one of them (microseconds since 1970
    UTC); None if the control API made one, or if a time can't be read. `counted` is likewise the
    latest of the decisions' times in the log. A decision that lacks two documents is counted for
    only one of them."""

    first: Finding
    decisions: int
    latest: int | None
    counted: int | None


class DocumentCitations:
    """Compares the policy documents in a file with those that its decisions cite, in one pass over
    verified lines. The caller passes each document to `line`, then the chunk of lines that contains
    it to `cited`, and calls `conclude` at the end."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._uncited: dict[str, None] = {}
        self._missing: dict[str, _Missing] = {}
        self._restored_at: int | None = None
        self._restored = 0
        self._unkept_until = 0
        self._dropped = False
        self.count = 0
        """The number of different documents in the file so far."""

    def line(self, document: bytes, at: int) -> Finding | None:
        """Take in a document that stands before entry number `at`. A second copy is ignored.
        Returns a finding if too many documents are not cited yet."""
        digest = hashlib.sha256(document).hexdigest()
        if digest in self._places:
            return None
        self._places[digest] = at
        self._uncited[digest] = None
        self.count += 1
        if len(self._places) > MOST_HELD:
            del self._places[next(iter(self._places))]
            self._dropped = True
        if len(self._uncited) <= MOST_UNCITED:
            return None
        del self._uncited[digest]
        return _uncited(digest)

    def cited(self, walked: Walked, with_openings: bool) -> Iterator[Finding]:
        """Take in the citations in a chunk of verified lines. A missing document is usually judged
        at the end; a finding is yielded at once only if there is no room to hold it until then."""
        result, missing = walked.result, set[str]()
        self._unkept_until = max(self._unkept_until, result.cited.unkept_until)
        for digest, (first, last) in result.cited.places.items():
            if self.stands_before(digest, last):
                self._uncited.pop(digest, None)
            if not self.stands_before(digest, first):
                missing.add(digest)
        restored = [seq for seq, kind, _ in result.notable if kind == INCARNATION]
        if self._restored_at is None and restored:
            self._restored_at = restored[0]
        if missing:
            yield from self._look(walked.chunk, missing, with_openings)

    def stands_before(self, digest: str, seq: int) -> bool:
        """Return whether the document with this digest stands in the file before entry `seq`."""
        return self._places.get(digest, seq + 1) <= seq

    def conclude(
        self, cutoff: int, *, restored: bool = False, unheld: int = 0
    ) -> tuple[list[Finding], list[NotDerived]]:
        """Judge the missing documents at the end of the file. Returns the findings, and for each
        kind of excuse the number of decisions whose document is missing for that reason. Entries
        recorded before `cutoff` (microseconds since 1970 UTC) were purged; 0 means that none were.
        `restored` says that a checkpoint belongs to a later incarnation of the log, so that the log
        may have been restored before this part of it. `unheld` is the number of decisions that cite
        a document which was dropped to save memory."""
        findings, late, lost, unkept = [], 0, self._restored, 0
        for each in self._missing.values():
            if each.latest is not None and each.latest < cutoff:
                late += each.decisions
            elif restored:
                lost += each.decisions
            elif each.counted is not None and each.counted < self._unkept_until:
                unkept += each.decisions
            elif self._dropped:
                unheld += each.decisions
            else:
                findings.append(each.first)
        findings += map(_uncited, self._uncited)
        reasons = (
            (late, "are older than what retention removed, and came late"),
            (lost, "follow a restore of the log, which lost documents"),
            (unkept, "are of a version that kept no documents"),
            (unheld, UNHELD),
        )
        return findings, [NotDerived(count, why) for count, why in reasons if count]

    @staticmethod
    def is_bound(gone: NotDerived) -> bool:
        """Return whether these decisions could not be checked because of the limit on the documents
        held in memory."""
        return gone.why == UNHELD

    def _look(self, chunk: bytes, digests: set[str], with_openings: bool) -> Iterator[Finding]:
        """Find the decisions in a chunk that cite one of the missing documents, and note each of
        them."""
        for line in chunk.split(b"\n"):
            parts = plain_entry(line, with_openings)
            entry = None if parts is None else orjson.loads(parts.entry)
            if entry is None or entry["kind"] != "decision":
                continue
            seq, cited = entry["seq"], dict.fromkeys(cited_digests(entry))
            missing = [
                each for each in cited if each in digests and not self.stands_before(each, seq)
            ]
            if missing and self._restored_at is not None and seq > self._restored_at:
                # The store went back, and a sidecar may have decided by what was lost with it.
                self._restored += 1
            elif missing:
                yield from self._note(missing, entry)

    def _note(self, missing: Sequence[str], entry: Mapping[str, Any]) -> Iterator[Finding]:
        """Note that a decision lacks its documents. They are judged only at the end, when it is
        known whether there is an excuse."""
        seq, time, counted = entry["seq"], _made_at(entry), _counted_at(entry)
        for place, digest in enumerate(missing):
            message = f"seq {seq}: the document `{digest}` that it cites is missing"
            found = Finding(seq, Reason.DOCUMENT_MISSING, message, entry["eid"])
            known = self._missing.get(digest)
            if known is not None:
                many = known.decisions + (place == 0)
                times = _later(known.latest, time), _later(known.counted, counted)
                self._missing[digest] = _Missing(known.first, many, *times)
            elif len(self._missing) >= MOST_MISSING:
                yield found
            else:
                self._missing[digest] = _Missing(found, int(place == 0), time, counted)


def _made_at(entry: Mapping[str, Any]) -> int | None:
    """Return the time at which a sidecar says that it made the decision (microseconds since 1970
    UTC); None if the control API made it, or if the time can't be read."""
    try:
        return micros(entry["src"]["t"]) if "src" in entry else None
    except NotCanonical:
        return None


def _counted_at(entry: Mapping[str, Any]) -> int | None:
    """Return the time that a decision has in the log (microseconds since 1970 UTC); None if it
    can't be read."""
    try:
        return micros(time_of(entry))
    except NotCanonical:
        return None


def _later(one: int | None, other: int | None) -> int | None:
    """Return the later of two times; None if either is unknown."""
    return None if one is None or other is None else max(one, other)


def _uncited(digest: str) -> Finding:
    message = f"no decision of the file cites the document `{digest}` behind it"
    return Finding(None, Reason.DOCUMENT_MISMATCH, message)


MOST_BYTES = 32 * 1024 * 1024
"""The limit on the documents that are held for deriving decisions, in bytes."""


class Derivation:
    """Derives each decision again from the policy documents in the file, in one pass over verified
    lines, and compares the result with the recorded decision. `documents` must have taken in each
    chunk before."""

    def __init__(self, documents: DocumentCitations) -> None:
        self._documents = documents
        self._bodies: dict[str, bytes] = {}
        self._bytes = 0
        self._recomputer = Recomputer(self._bodies.get)
        self.unheld = 0
        """The number of decisions that could not be derived because one of their documents was
        dropped to save memory."""

    @property
    def counts(self) -> RecomputeCounts:
        return self._recomputer.counts

    def feed(self, chunk: bytes, with_openings: bool) -> Iterator[Finding]:
        """Take in a chunk of verified lines, and yield a finding for each decision that does not
        follow from its documents."""
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
        """Return the decisions that could not be derived although their documents are there: a
        restore of the log lost the changes that they rest on."""
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


class PolicyCheck:
    """Verifies the policy documents of a file, and the decisions if `recompute` is set, in one pass
    over verified lines. The caller passes each document to `line`, then the chunk of lines that
    contains it to `take`. The findings go into `outcome`."""

    def __init__(self, outcome: Outcome, *, recompute: bool) -> None:
        self._outcome = outcome
        self._documents = DocumentCitations()
        self._derived = Derivation(self._documents) if recompute else None

    def line(self, document: bytes, at: int) -> Finding | None:
        """Take in a document that stands before entry number `at`. Returns a finding if too many
        documents are not cited yet."""
        return self._documents.line(document, at)

    def take(self, walked: Walked, with_openings: bool) -> None:
        """Take in a chunk of verified lines, and add its findings to the outcome."""
        for finding in self._documents.cited(walked, with_openings):
            self._outcome.add(finding)
        if self._derived is not None:
            for finding in self._derived.feed(walked.chunk, with_openings):
                self._outcome.add(finding)

    def count(self) -> None:
        """Copy the number of derived decisions to the outcome, also for a file that is broken."""
        if self._derived is not None:
            self._outcome.recomputed = self._derived.counts.recomputed
            self._outcome.not_recomputable = self._derived.counts.not_recomputable

    def conclude(self, cutoff: int, *, restored: bool) -> None:
        """Judge the missing documents at the end of a file that was read to its end. The arguments
        are those of `DocumentCitations.conclude`."""
        derived, outcome = self._derived, self._outcome
        unheld = 0 if derived is None else derived.unheld
        found, gone = self._documents.conclude(cutoff, restored=restored, unheld=unheld)
        for finding in found:
            outcome.add(finding)
        outcome.documents = self._documents.count
        outcome.documents_gone = gone
        outcome.not_derived = self._not_derived(gone)

    def _not_derived(self, gone: list[NotDerived]) -> list[NotDerived]:
        if self._derived is not None:
            return gone + self._derived.not_derived()
        # Without `--recompute`, a document that the log says is gone leaves no decision unchecked.
        # One that was dropped at the bound on memory does: its digest was not compared.
        return [each for each in gone if self._documents.is_bound(each)]
