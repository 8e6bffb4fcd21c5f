"""Judges what stands behind a file's last entry: the checkpoint that proves it in a larger log, and
the erasures of that log. They are `redact` entries that erased openings of entries in the file.
"""

from typing import Any

import orjson

from policies.trail.checkpoint import Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.lines import (
    CheckpointLine,
    EndLine,
    ErasureLine,
    Line,
    ProofLine,
)
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import inclusion
from policies.trail.stored_entry import EntryFinding, check_entry
from policies.trail.walk.erasures import KIND, Erasures, erased_ranges

_VERSION = b',"v":1}'


class Ending:
    """The lines behind the last entry of a file of the log `log`, before entry `until`."""

    def __init__(self, log: str, until: int) -> None:
        self._log = log
        self._last = until - 1
        self._at: int | None = None
        self.proof: ProofLine | None = None
        """The proof of the last entry, until its checkpoint was read."""
        self.proven: Checkpoint | None = None
        """The checkpoint of the larger log, once the proof led to it."""
        self.erased = 0
        """Entries of the file whose openings the erasures behind it excuse."""
        self.unproven = 0
        """Those of them whose erasure no trusted checkpoint covers."""

    def misplaced(self, line: Line, size: int) -> str | None:
        """Why a line, with `size` entries of the log before it, may not stand there."""
        if self._at not in (None, size):
            # It would seem to be proven by the proof before it.
            return "an entry stands behind the proof of the last entry, or behind an erasure"
        if self.proof is not None and not isinstance(line, CheckpointLine):
            return "no checkpoint follows the proof of the last entry"
        if self._at is None or self.proof is not None or isinstance(line, ErasureLine | EndLine):
            return None
        return "a line stands behind the proof of the last entry, or behind an erasure"

    def begin(self, proof: ProofLine, size: int) -> None:
        """The proof of the last entry, which is number `size - 1`."""
        self.proof, self._at = proof, size

    def take(
        self, line: ErasureLine, size: int, erasures: Erasures, *, trusted: bool
    ) -> Finding | None:
        """Apply an erasure to the openings that are missing. `trusted` says that the checkpoint of
        the larger log proves something."""
        self._at, raw = size, line.entry.encode()
        entry = self._entry(raw)
        if isinstance(entry, Finding):
            return entry
        if line.proof is not None and not _proves(raw, entry["seq"], line.proof, self.proven):
            message = f"the erasure of seq {entry['seq']} is not in the log of the last checkpoint"
            return Finding(None, Reason.ROOT_MISMATCH, message)
        self._last = entry["seq"]
        before = erasures.excused
        for first, last in erased_ranges(entry):
            erasures.redact(first, last)
        self.erased += erasures.excused - before
        if line.proof is None or not trusted:
            self.unproven += erasures.excused - before
        return None

    def _entry(self, raw: bytes) -> dict[str, Any] | Finding:
        """The `redact` entry of a line; a finding unless it is one that belongs there."""
        try:
            entry: dict[str, Any] = orjson.loads(raw)
            check_entry(raw, entry)
            seq, log, kind = entry["seq"], entry["log"], entry["kind"]
            fits = type(seq) is int and seq > self._last and log == self._log and kind == KIND
            if fits and type(entry["prev"]) is str and raw.endswith(_VERSION):
                return entry
            wrong = "is not a `redact` entry of this log, in order and behind the file's end"
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            wrong = f"can't be read: {error!s:.200}"
        return Finding(None, Reason.FILE_MALFORMED, f"an erasure behind the last entry {wrong}")


def _proves(raw: bytes, seq: int, hashes: list[bytes], covered: Checkpoint | None) -> bool:
    if covered is None:
        return False
    return inclusion.verify(leaf_hash(raw), seq, covered.size, hashes, covered.root)
