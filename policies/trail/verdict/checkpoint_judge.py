"""Judges checkpoints against a log's tree: is this the log that was signed, by whom, and how far?

It is given the notes of a file in order, and notes from outside, which are checkpoints that were
kept elsewhere. The log must be consistent with each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.ground.canonical import b64, rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint, is_origin_of
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import signed_note
from policies.trail.proofs.nodes import frontier_nodes
from policies.trail.proofs.signed_note import Cosignature, Note, VerifierKey
from policies.trail.verdict.outcome import Level, NotCompared, Outcome, Unusable
from policies.trail.verdict.trusted_keys import TrustedKeys, short, witnessed


@dataclass(slots=True)
class Judged:
    """A checkpoint whose root fits the log's tree. `at` is the number of the entry that a finding
    about it names. `trusted` says that a trusted key signed it; `how` gives the reason for the
    trust, or says that there is none."""

    checkpoint: Checkpoint
    at: int
    trusted: bool
    signer: bytes
    how: str
    cosignatures: list[Cosignature] = field(default_factory=list)


class CheckpointJudge:
    """Judges the checkpoints of one log, in any of its incarnations."""

    def __init__(
        self,
        log: str,
        keys: TrustedKeys,
        witnesses: Sequence[VerifierKey] = (),
        quorum: int | None = None,
    ) -> None:
        self._log = log
        self._keys = keys
        self._witnesses = tuple(dict.fromkeys(witnesses))
        self._quorum = len(self._witnesses) if quorum is None else quorum
        self.newest: Judged | None = None
        """The largest checkpoint that fits the tree; if keys are pinned, only of those that a
        trusted key signed."""
        self.count = 0
        self.former = 0
        """The number of checkpoints that a predecessor of a pinned key signed."""

    def read(self, text: str, where: int | None) -> tuple[Note, Checkpoint] | Finding:
        """Parse a note as a checkpoint of this log, without verifying it. Return a finding if it
        can't be read or belongs to another log."""
        try:
            note = signed_note.parse(text)
            found = checkpoint.parse(note.text)
            if found.text() != note.text:
                raise BadNote("the checkpoint has extension lines")
        except BadNote as error:
            return Finding(where, Reason.CHECKPOINT_UNREADABLE, f"a checkpoint: {error}")
        if not is_origin_of(found.origin, self._log):
            other = f"a checkpoint is one of `{found.origin:.80}`, not of log `{self._log}`"
            return Finding(where, Reason.CHECKPOINT_UNREADABLE, other)
        return note, found

    def judge(
        self, note: Note, found: Checkpoint, root: bytes, at: int | None = None
    ) -> Finding | None:
        """Compare a checkpoint with `root`, the tree's root at its size, and verify who signed it.
        Return a finding if either is wrong. The finding names the entry `at`; if that is None, the
        last entry that the checkpoint covers."""
        at = max(found.size - 1, 0) if at is None else at
        self.count += 1
        if found.root != root:
            message = (
                f"a checkpoint of {found.size} entries has the root {b64(found.root)}, the "
                f"entries give {b64(root)}"
            )
            return Finding(at, Reason.ROOT_MISMATCH, message)
        try:
            judged = self._signed(note, found, at)
            if judged is None:
                return self._not_signed(note, found, at)
            judged.cosignatures = witnessed(note, self._witnesses)
        except BadNote as error:
            message = f"the checkpoint of {found.size} entries: {error}"
            return Finding(at, Reason.SIGNATURE_MISSING, message)
        if self._keys.pinned and not judged.trusted:
            self.former += 1
            return None
        if self.newest is None or self._rank(judged) >= self._rank(self.newest):
            self.newest = judged
        return None

    def _not_signed(self, note: Note, found: Checkpoint, at: int) -> Finding:
        """Return the finding that no pinned or claimed key signed the checkpoint. Raises `BadNote`
        as `_signed` does."""
        which = "a pinned key" if self._keys.pinned else "a key that the log claims"
        message = f"the checkpoint of {found.size} entries is not signed by {which}"
        claimed = self._keys.claimed_signer(note, found.origin) if self._keys.pinned else None
        if claimed is not None:
            # Most often an export of before a rotation, and the key of after it.
            message = (
                f"the checkpoint of {found.size} entries is signed by another key than the pinned: "
                f"by {short(claimed)}, which the log claims; if you know it as a former key of the "
                "log, pin it too (--key)"
            )
        return Finding(at, Reason.SIGNATURE_MISSING, message)

    def conclude(self, outcome: Outcome, *, whole: bool) -> None:
        """Write the conclusions from the checkpoints into `outcome`. `whole` says that all
        checkpoints were read, so that a missing one is a finding."""
        newest = self.newest
        outcome.pinned = bool(self._keys.pinned)
        outcome.given_keys = [short(each) for each in self._keys.pinned]
        if newest is None:
            if self._keys.pinned and whole:
                message = "no checkpoint is signed by a pinned key, so nothing proves the entries"
                outcome.add(Finding(None, Reason.CHECKPOINT_MISSING, message))
            elif self._witnesses and whole:
                message = f"there is no checkpoint that could have {self._quorum} cosignatures"
                outcome.add(Finding(None, Reason.QUORUM_MISSING, message))
            return
        outcome.covered = newest.checkpoint.size
        outcome.signer, outcome.covered_how = short(newest.signer), newest.how
        if newest.trusted:
            outcome.level = Level.SIGNED
        outcome.witnesses = [
            f"{each.key.name}, {rfc3339(_micros(each.signed_at))}" for each in newest.cosignatures
        ]
        if self._witnesses:
            self._conclude_witnesses(outcome, newest)
        if self.former:
            outcome.notes.append(
                f"{self.former} older checkpoints are signed by a key that a pinned key succeeded"
            )

    def _conclude_witnesses(self, outcome: Outcome, newest: Judged) -> None:
        count = len({each.key.public for each in newest.cosignatures})
        if count >= max(self._quorum, 1):
            # Without a pinned key, a witness has seen the log, but nothing says whose it is.
            outcome.level = Level.WITNESSED if newest.trusted else outcome.level
        elif count < self._quorum:
            size = newest.checkpoint.size
            message = f"the checkpoint of {size} entries has {count} of {self._quorum} cosignatures"
            outcome.add(Finding(newest.at, Reason.QUORUM_MISSING, message))

    def _rank(self, judged: Judged) -> tuple[int, int]:
        return judged.checkpoint.size, len(judged.cosignatures)

    def _signed(self, note: Note, found: Checkpoint, at: int) -> Judged | None:
        signer = self._keys.signer(note, found.origin)
        if signer is not None:
            return Judged(found, at, True, *signer)
        if not self._keys.pinned:
            claimed = self._keys.claimed_signer(note, found.origin)
            if claimed is None:
                return None
            return Judged(found, at, False, claimed, "claimed, not pinned")
        former = self._keys.former_signer(note, found.origin)
        if former is not None:
            return Judged(found, at, False, *former)
        return None


def _micros(seconds: int) -> int:
    # A witness may sign any time; the year 9999 is the last that has a text.
    return min(seconds, 253_402_300_799) * 1_000_000


class KnownNotes:
    """The checkpoints of one log that were kept outside of it. `origin` is the log's newest."""

    def __init__(
        self, judge: CheckpointJudge, origin: str, texts: Sequence[str], *, to_end: bool = False
    ) -> None:
        """Parse the notes. `to_end` says that the user asked for the whole log, so that an end that
        is missing is no mere partial export. Raises `Unusable` for a text that is no checkpoint of
        this log, since it comes from the command's arguments."""
        self._judge, self._origin, self._given = judge, origin, len(texts)
        self._to_end = to_end
        self._notes: list[tuple[Note, Checkpoint]] = []
        for text in texts:
            found = judge.read(text, None)
            if isinstance(found, Finding):
                raise Unusable(f"--checkpoint: {found.message}")
            self._notes.append(found)

    def add(self, text: str, outcome: Outcome) -> None:
        """Add a note that the log's owner keeps. If it can't be read, add a finding to
        `outcome`."""
        found = self._judge.read(text, None)
        if isinstance(found, Finding):
            outcome.add(found)
        else:
            self._notes.append(found)

    def sizes(self) -> frozenset[int]:
        """Return the tree sizes at which `compare` needs the tree's root."""
        return frozenset(checkpoint.size for _, checkpoint in self._notes)

    def compare(self, outcome: Outcome, roots: Mapping[int, bytes], *, whole: bool) -> None:
        """Add a finding for each note that the log contradicts. `roots` are the tree's roots at
        those sizes that the walk reached; `whole` says that the walk came to the end."""
        # A part may end before the note's size, but its last checkpoint tells how long the log is.
        newest = self._judge.newest
        reach = max(outcome.size, 0 if newest is None else newest.checkpoint.size)
        for number, (note, found) in enumerate(self._notes):
            size = found.size
            root = roots.get(size)
            if found.origin != self._origin:
                message = (
                    f"the checkpoint given is one of `{found.origin}`, and the log continues as "
                    f"`{self._origin}`"
                )
                outcome.add(Finding(None, Reason.INCARNATION, message))
            elif root is not None:
                if fault := self._judge.judge(note, found, root):
                    outcome.add(fault)
            elif size > reach and whole and (self._to_end or not _is_part(outcome)):
                message = f"the checkpoint given counts {size} entries, the log ends at {reach}"
                outcome.add(Finding(reach, Reason.LOG_BEHIND_CHECKPOINT, message))
            elif number < self._given:
                outcome.not_compared.append(NotCompared(size, _why_not(outcome, size, whole=whole)))


_UNPROVEN = (
    ", and only the file's header says that it is a part, which no key signs: a log that lost what "
    "followed may say so too. To tell, compare an export of the whole log with this checkpoint"
)


def _is_part(outcome: Outcome) -> bool:
    """Return whether only a range of the log was exported. The log may have grown and been signed
    since, so a range that ends before a checkpoint from outside is no fault. But someone who rolled
    a log back may also call the remaining entries a partial export. So such a checkpoint is
    reported as not compared, rather than ignored."""
    return _is_shown_part(outcome) or outcome.partial


def _is_shown_part(outcome: Outcome) -> bool:
    """Return whether a file's entries show that it is a partial export, rather than only its
    header."""
    return outcome.first > outcome.oldest or not outcome.to_end


def _why_not(outcome: Outcome, size: int, *, whole: bool) -> str:
    if size >= outcome.first and not whole:
        return "lies outside of what was verified"
    if size >= outcome.first:
        return "lies behind this part of the log" + ("" if _is_shown_part(outcome) else _UNPROVEN)
    if outcome.first > outcome.oldest:
        return "lies before this part of the log"
    return f"lies inside the purged prefix; the smallest to compare is one of {outcome.first}"


def earlier_roots(tree: Frontier) -> dict[int, bytes]:
    """Return the roots of those smaller trees that follow from this tree's frontier alone, by their
    size: the tree of its largest complete subtree, of its two largest, and so on; and its own
    root."""
    roots, size = {0: Frontier().root()}, 0
    for count, node in enumerate(frontier_nodes(tree.size), 1):
        size += 1 << node.level
        roots[size] = Frontier(size, tree.hashes[:count]).root()
    return roots
