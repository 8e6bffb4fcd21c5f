"""Verifies an export file line by line: the header, the entries, the checkpoints and the end.

`policies.trail.walk` verifies the entries, `policies.trail.verdict.checkpoint_judge` the
checkpoints.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import BinaryIO

import orjson

from deploy.commands.verify.ending import (
    EndingJudge,
    FileStart,
    end_fault,
    purge_entries,
    purge_findings,
    purged_before,
)
from deploy.commands.verify.policy_check import PolicyCheck
from deploy.commands.verify.pool import Progress, Walked, WalkOptions, walk_chunks
from deploy.commands.verify.source import IdBuckets, LineChunks, pieces
from policies.trail.checkpoint import Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import BadHeader, BadLine, parse_line, plain_entry
from policies.trail.log_file.lines import (
    MAX_OTHER,
    CheckpointLine,
    DamagedLine,
    EndLine,
    ErasureLine,
    FrontierLine,
    HeaderLine,
    Line,
    PolicyLine,
    ProofLine,
    PurgeLine,
    TruncatedLine,
)
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.signed_note import VerifierKey
from policies.trail.proofs.tree_proofs import proves_tail
from policies.trail.verdict.checkpoint_judge import CheckpointJudge, KnownNotes, earlier_roots
from policies.trail.verdict.outcome import Outcome, Unusable
from policies.trail.verdict.summary import neighbours
from policies.trail.verdict.trusted_keys import TrustedKeys
from policies.trail.walk.joined_walk import JoinedWalk


def read_header(chunks: LineChunks, subject: str) -> HeaderLine:
    """Read and parse the file's first line, its header. Raises `Unusable` if the file does not
    begin like an export; `subject` names the file in that message."""
    raw = chunks.line(MAX_OTHER)
    # A parser would need many times the line's length, before anything is known of the file.
    if len(chunks.rest if raw is None else raw) > MAX_OTHER:
        raise Unusable(
            f"{subject} can't be verified: its first line is longer than {MAX_OTHER} bytes, which "
            "no export's header is"
        )
    try:
        line = None if raw is None else parse_line(raw)
    except BadHeader as error:
        raise Unusable(f"{subject} can't be verified: {error}") from error
    except BadLine:
        line = None
    if isinstance(line, HeaderLine):
        return line
    why = "" if chunks.fault is None else f": {chunks.fault}"
    raise Unusable(
        f"{subject} is not an export of a log: it does not begin with "
        f'{{"format":"sluice-log/1",…}}{why}'
    )


def read_frontier(chunks: LineChunks, header: HeaderLine) -> Frontier | Finding:
    """Return the Merkle tree of the entries before the file's first one. That is the empty tree, or
    for a partial export the tree that its `frontier` line gives. Returns a finding if that line is
    missing or does not fit."""
    first = header.first
    if not first:
        return Frontier()
    raw = chunks.line()
    if raw is None:
        return Finding(None, Reason.FILE_TRUNCATED, "the file ends after its first line")
    line = _parsed(raw)
    if isinstance(line, FrontierLine) and line.size == first:
        try:
            return Frontier.from_bytes(first, b"".join(line.hashes))
        except ValueError:
            pass  # it does not fit its size
    message = f"line 2: the frontier of the {first} entries before the file is missing or wrong"
    return Finding(None, Reason.FILE_MALFORMED, message)


def _parsed(raw: bytes | None) -> Line | None:
    try:
        return None if raw is None else parse_line(raw)
    except BadLine:
        return None


MOST_FINDINGS = 100
MOST_SOURCES = 200_000
"""The most enforcement points whose chains of records are followed through a file: a bound on
memory."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a verification. `known` are checkpoints that the caller got elsewhere, which
    the log must not contradict. `recompute` says to derive each decision again from its policy
    documents."""

    keys: Sequence[VerifierKey] = ()
    witnesses: Sequence[VerifierKey] = ()
    quorum: int | None = None
    known: Sequence[str] = ()
    jobs: int = 1
    recompute: bool = False
    progress: Progress = field(default_factory=Progress)
    to_end: bool = False
    """True if the file must reach the end of the log, because the export was requested without an
    end."""


class FileCheck:
    """Verifies one export file, in one pass over its lines."""

    def __init__(self, chunks: LineChunks, subject: str, options: CheckOptions) -> None:
        self._chunks = chunks
        self._options = options
        self._outcome = Outcome(subject)
        self.header = header = read_header(chunks, subject)
        frontier = read_frontier(chunks, header)
        self._broken = frontier if isinstance(frontier, Finding) else None
        tree = Frontier() if isinstance(frontier, Finding) else frontier
        self._base = Frontier(tree.size, list(tree.hashes))
        # The last leaf before the part is known only if it is a subtree of its own.
        last_leaf = tree.hashes[-1] if tree.size & 1 else None
        self.walk = JoinedWalk(header.log, tree, last_leaf, MOST_SOURCES)
        self.keys = TrustedKeys(options.keys, header.keys)
        self._judge = CheckpointJudge(header.log, self.keys, options.witnesses, options.quorum)
        self._known = KnownNotes(self._judge, header.origin, options.known, to_end=options.to_end)
        self.newest_note = ""
        """The newest checkpoint in the file that fits its entries. If keys are pinned, only
        checkpoints signed by one of them count."""
        self._ids = IdBuckets()
        self._policies = PolicyCheck(self._outcome, recompute=options.recompute)
        self._ended: EndLine | None = None
        self._ending = EndingJudge(header.log, header.until)
        self._last_entry = b""

    def run(self) -> tuple[Outcome, set[int]]:
        """Verify the file. Returns the outcome, and the hashes of entry ids that may occur
        twice."""
        options = WalkOptions(self.header.with_openings, self._known.sizes())
        if self._broken is None:
            for walked in walk_chunks(self._chunks, options, self._options.jobs):
                if not self._take(walked):
                    break
        if self._broken is None:
            self._broken = end_fault(self._chunks, self._ended, self.walk, self.header.until)
        if self._broken is not None:
            self._outcome.add(self._broken)
        self._conclude()
        candidates = self._ids.candidates()
        self._ids.close()
        return self._outcome, candidates

    # ------------------------------------------------------------------------------ the lines

    def _take(self, walked: Walked) -> bool:
        first = self.walk.tree.size
        self._options.progress.entries = first - self.walk.base
        if self.walk.join(walked.result, self._on_other):
            self._ids.add(walked.result.ids)
            self._policies.take(walked, self.header.with_openings)
            self._last_entry = walked.chunk[walked.chunk.rfind(b"\n") + 1 :]
            return True
        self._broken = self.walk.broken
        if self._broken is not None and self._broken.seq is not None:
            start = walked.result.start
            place = 0 if start is None else max(self._broken.seq - start.seq, 0)
            self._outcome.neighbours = neighbours(walked.chunk, place, self._last_entry)
        return False

    def _on_other(self, raw: bytes, tree: Frontier) -> Finding | None:
        """Judge a line that is not an entry; `tree` is the Merkle tree of the entries before it.
        Returns a finding if the verification can't go on after it."""
        try:
            line = parse_line(raw, self.header.with_openings)
        except BadLine as error:
            return self._malformed(str(error), tree)
        if self._ended is not None:
            return self._malformed("more lines follow the last one", tree)
        if isinstance(line, TruncatedLine):
            reason = f"the export ended early: {line.reason:.200}"
            return Finding(None, Reason.FILE_TRUNCATED, reason)
        if misplaced := self._ending.misplaced(line, tree.size):
            return self._malformed(misplaced, tree)
        match line:
            case PolicyLine():
                self._note_finding(self._policies.line(line.document, tree.size))
                return None
            case CheckpointLine():
                return self._on_checkpoint(line, tree)
            case ProofLine():
                self._ending.begin(line, tree.size)
                return None
            case PurgeLine():
                trusted = self._is_trusted(self._ending.latest)
                return self._ending.take_purge(line, tree.size, trusted=trusted)
            case ErasureLine():
                trusted = self._is_trusted(self._ending.proven)
                return self._ending.take(line, tree.size, self.walk.erasures, trusted=trusted)
            case EndLine():
                self._ended = line
                return None
            case DamagedLine():
                message = f"seq {tree.size}: the row of entry {line.seq} holds no entry"
                return Finding(tree.size, Reason.NOT_AN_ENTRY, message)
        return self._malformed("a line stands where it may not", tree)

    def _on_checkpoint(self, line: CheckpointLine, tree: Frontier) -> Finding | None:
        proof, self._ending.proof = self._ending.proof, None
        found = self._judge.read(line.note, max(tree.size - 1, 0))
        if isinstance(found, Finding):
            self._note_finding(found)
            return None
        note, checkpoint = found
        if proof is not None:
            size, root = checkpoint.size, checkpoint.root
            if not proves_tail(tree, self.walk.last_leaf, size, root, proof.hashes):
                message = f"the entries are not the beginning of the checkpoint of {size} entries"
                return Finding(max(tree.size - 1, 0), Reason.ROOT_MISMATCH, message)
            self._ending.proven = self._ending.latest = checkpoint
            at = max(tree.size - 1, 0)
            self._note_finding(self._judge.judge(note, checkpoint, root, at))
            self._keep(line.note, checkpoint)
            return None
        if checkpoint.size != tree.size:
            message = f"a checkpoint of {checkpoint.size} entries stands after {tree.size}"
            return self._malformed(message, tree)
        found_fault = self._judge.judge(note, checkpoint, tree.root())
        if found_fault is not None and found_fault.reason is Reason.ROOT_MISMATCH:
            return found_fault
        self._ending.latest = checkpoint
        self._note_finding(found_fault)
        self._keep(line.note, checkpoint)
        return None

    def _keep(self, note: str, checkpoint: Checkpoint) -> None:
        # INVARIANT: what a former key signed proves nothing, and later runs would rest on it.
        if self._is_trusted(checkpoint):
            self.newest_note = note

    def _is_trusted(self, checkpoint: Checkpoint | None) -> bool:
        """Return whether `checkpoint` is the newest accepted one in the file: signed by a pinned
        key, or if no key is pinned, by one that the file claims."""
        newest = self._judge.newest
        return newest is not None and newest.checkpoint == checkpoint

    def _note_finding(self, found: Finding | None) -> None:
        """Add a finding about a checkpoint or a document, if there is one. The verification goes
        on: the entries may still be valid."""
        if found is not None:
            self._outcome.add(found)

    def _malformed(self, message: str, tree: Frontier) -> Finding:
        return Finding(None, Reason.FILE_MALFORMED, f"after {tree.size} entries: {message}")

    # -------------------------------------------------------------------------------- the end

    def _conclude(self) -> None:
        outcome, walk, header = self._outcome, self.walk, self.header
        outcome.log, outcome.origin = header.log, header.origin
        outcome.oldest, outcome.made_at = header.first_kept, header.made_at
        outcome.first, outcome.size = walk.base, walk.tree.size
        outcome.decisions, outcome.sources = walk.decisions, len(walk.sources)
        outcome.spools_followed = not walk.unfollowed
        outcome.first_ts, outcome.last_ts = walk.first_ts, walk.last_ts
        outcome.claimed_keys = [str(key["key"]) for key in header.keys]
        if not header.with_openings:
            outcome.openings = "left out of the file"
        if self._broken is None:
            for finding in walk.erasures.findings(MOST_FINDINGS):
                outcome.add(finding)
            self._conclude_purges()
        outcome.silences = walk.silences
        outcome.to_end = self._broken is None and self._ending.proven is None
        outcome.partial = header.part and not self._options.to_end
        outcome.erased = walk.erasures.excused
        outcome.erased_later = self._ending.erased
        outcome.erased_unproven = self._ending.unproven
        self._policies.count()
        roots = {**earlier_roots(self._base), **walk.roots}
        self._known.compare(outcome, roots, whole=self._broken is None)
        self._judge.conclude(outcome, whole=self._broken is None)

    def _conclude_purges(self) -> None:
        """Judge the `purge` entries, and then the missing documents, which may have been removed
        together with the purged entries."""
        walk, newest = self.walk, self._judge.newest
        purges = purge_entries(walk.notable, 0 if newest is None else newest.checkpoint.size)
        purges += self._ending.purges
        # A file without entries shows none of the oldest either.
        oldest = self.header.first_kept if walk.walked() else 0
        start = FileStart(self._base, walk.first_prev, oldest)
        for finding in purge_findings(purges, start, signed=newest is not None):
            self._outcome.add(finding)
        # No key signs the header: only a checkpoint tells of another incarnation.
        restored = newest is not None and newest.checkpoint.origin != self.header.log
        self._policies.conclude(purged_before(purges, oldest), restored=restored)


MOST = 100


def repeated(open_file: Callable[[], BinaryIO] | None, candidates: Set[int]) -> list[Finding]:
    """Return a finding for each entry whose id an earlier entry has, at most `MOST` of them.
    `candidates` are the hashes of ids that may be repeated. If `open_file` is None, the file can't
    be read again, and one finding says so."""
    if open_file is None:
        message = (
            f"{len(candidates)} ids occur twice; they can't be named, since standard input can't "
            "be read a second time"
        )
        return [Finding(None, Reason.DUPLICATE_ID, message)]
    seen: dict[str, int] = {}
    found: list[Finding] = []
    with open_file() as file:
        for chunk in LineChunks(pieces(file), lambda _: None):
            for line in chunk.split(b"\n"):
                parts = plain_entry(line, b',"openings":' in line)
                eid, seq = ("", -1) if parts is None else _id(parts.entry)
                if seq < 0 or hash(eid.encode()) not in candidates:
                    continue
                first = seen.setdefault(eid, seq)
                if first != seq and len(found) < MOST:
                    message = f"seq {seq}: has the id `{eid:.80}` of entry {first}"
                    found.append(Finding(seq, Reason.DUPLICATE_ID, message, eid))
    return found


def _id(raw: bytes) -> tuple[str, int]:
    try:
        entry = orjson.loads(raw)
        return entry["eid"], entry["seq"]
    except (ValueError, TypeError, LookupError):
        return "", -1


def verify_file(
    open_file: Callable[[], BinaryIO], subject: str, options: CheckOptions, *, again: bool
) -> Outcome:
    """Verify the export that `open_file` opens; `subject` names it in the outcome. `again` says
    that it can be opened a second time. Raises `Unusable` if the file is not an export."""
    with open_file() as file:
        check = FileCheck(LineChunks(pieces(file), options.progress.advance), subject, options)
        outcome, candidates = check.run()
    if candidates:
        for finding in repeated(open_file if again else None, candidates):
            outcome.add(finding)
    options.progress.end()
    return outcome
