"""Judges checkpoints against a log's tree: is this the log that was signed, by whom, and how far?

Fed with the notes of a file in order, and with notes from outside. Knows no file and no entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from control_api.verifier.outcome import Level, Outcome
from control_api.verifier.trusted_keys import TrustedKeys, short, witnessed
from policies.ground.canonical import b64, rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.incarnation import is_origin_of
from policies.trail.proofs import signed_note
from policies.trail.proofs.cosignature import Cosignature
from policies.trail.proofs.signed_note import Note, VerifierKey


@dataclass(slots=True)
class Judged:
    """A checkpoint that fits the tree. `at` is the entry that a finding about it names. `trusted`
    says that a trusted key signed it, and `how` why it is trusted, or that it isn't."""

    checkpoint: Checkpoint
    at: int
    trusted: bool
    signer: bytes
    how: str
    cosignatures: list[Cosignature] = field(default_factory=list)


class CheckpointJudge:
    """Judges the notes of one log, of any of its incarnations."""

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
        """The largest checkpoint that fits, by a trusted key if any is pinned."""
        self.count = 0
        self.former = 0
        """Checkpoints that a predecessor of a pinned key signed."""

    def read(self, text: str, where: int | None) -> tuple[Note, Checkpoint] | Finding:
        """The note's checkpoint, not verified yet; a finding if it belongs to another log."""
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
        """Compare a checkpoint with the tree's `root` at its size, and verify who signed it. A
        finding names the entry `at`, the last that the checkpoint covers if that is None."""
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
            if judged is not None:
                judged.cosignatures = witnessed(note, self._witnesses)
        except BadNote as error:
            message = f"the checkpoint of {found.size} entries: {error}"
            return Finding(at, Reason.SIGNATURE_MISSING, message)
        if judged is None:
            which = "a pinned key" if self._keys.pinned else "a key that the log claims"
            message = f"the checkpoint of {found.size} entries is not signed by {which}"
            return Finding(at, Reason.SIGNATURE_MISSING, message)
        if self._keys.pinned and not judged.trusted:
            self.former += 1
            return None
        if self.newest is None or self._rank(judged) >= self._rank(self.newest):
            self.newest = judged
        return None

    def conclude(self, outcome: Outcome, *, whole: bool) -> None:
        """Write what the checkpoints prove into the outcome. `whole` says that all of them were
        read, so that a missing one is a finding."""
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
