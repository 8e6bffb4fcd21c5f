"""Judges what stands behind a file's last entry: the checkpoint that proves it in a larger log, the
`purge` entry of what precedes the oldest entry, and the erasures of that log. They are `redact`
entries that erased openings of entries in the file. And the last line.
"""

from typing import Any

import orjson

from control_api.verifier.file.purge_check import PurgeSeen
from control_api.verifier.file.source import LineChunks
from policies.trail.checkpoint import Checkpoint
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.lines import (
    MAX_LINE,
    CheckpointLine,
    EndLine,
    ErasureLine,
    Line,
    ProofLine,
    PurgeLine,
)
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs import inclusion
from policies.trail.purge import KIND as PURGE
from policies.trail.stored_entry import EntryFinding, check_entry
from policies.trail.walk.erasures import KIND as REDACT
from policies.trail.walk.erasures import Erasures, erased_ranges
from policies.trail.walk.joined_walk import JoinedWalk

_VERSION = b',"v":1}'


class Ending:
    """The lines behind the last entry of a file of the log `log`, before entry `until`."""

    def __init__(self, log: str, until: int) -> None:
        self._log = log
        self._last = until - 1
        self._at: int | None = None
        self._in_order = True
        self.proof: ProofLine | None = None
        """The proof of the last entry, until its checkpoint was read."""
        self.proven: Checkpoint | None = None
        """The checkpoint of the larger log, once the proof led to it."""
        self.latest: Checkpoint | None = None
        """The last checkpoint of the file whose root is the tree's."""
        self.purges: list[PurgeSeen] = []
        """The `purge` entry that the file brings along, if it does."""
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
        if isinstance(line, PurgeLine):
            return None if self._in_order else "a `purge` entry stands behind what follows it"
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
        self._at, self._in_order, raw = size, False, line.entry.encode()
        entry = self._entry(raw, REDACT)
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

    def take_purge(self, line: PurgeLine, size: int, *, trusted: bool) -> Finding | None:
        """Note the `purge` entry. `trusted` says that the last checkpoint proves something."""
        self._at, self._in_order, raw = size, False, line.entry.encode()
        entry = self._entry(raw, PURGE)
        if isinstance(entry, Finding):
            return entry
        proven = line.proof is not None
        if line.proof is not None and not _proves(raw, entry["seq"], line.proof, self.latest):
            message = f"the purge of seq {entry['seq']} is not in the log of the last checkpoint"
            return Finding(None, Reason.ROOT_MISMATCH, message)
        self.purges = [PurgeSeen(entry["seq"], entry["pub"], covered=proven and trusted)]
        return None

    def _entry(self, raw: bytes, kind: str) -> dict[str, Any] | Finding:
        """The entry of a line; a finding unless it is one of this kind that belongs there."""
        try:
            entry: dict[str, Any] = orjson.loads(raw)
            check_entry(raw, entry)
            # A part may begin behind the `purge` entry, but its erasures are behind its end.
            seq, last = entry["seq"], self._last if kind == REDACT else -1
            fits = type(seq) is int and seq > last and entry["kind"] == kind
            same = entry["log"] == self._log and raw.endswith(_VERSION)
            if fits and same and type(entry["prev"]) is str:
                return entry
            wrong = f"is not a `{kind}` entry of this log in its place"
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            wrong = f"can't be read: {error!s:.200}"
        return Finding(None, Reason.FILE_MALFORMED, f"a line behind the last entry {wrong}")


def _proves(raw: bytes, seq: int, hashes: list[bytes], covered: Checkpoint | None) -> bool:
    if covered is None:
        return False
    return inclusion.verify(leaf_hash(raw), seq, covered.size, hashes, covered.root)


def end_fault(
    chunks: LineChunks, ended: EndLine | None, walk: JoinedWalk, until: int
) -> Finding | None:
    """Why the file, of which `walk` has seen all entries before `until`, does not end as it must,
    with the line `ended`."""
    if chunks.fault is not None and not chunks.fault.truncated:
        return Finding(None, Reason.FILE_MALFORMED, str(chunks.fault))
    if len(chunks.rest) > MAX_LINE:
        long = f"line {chunks.lines + 1} is longer than {MAX_LINE} bytes"
        return Finding(None, Reason.FILE_MALFORMED, long)
    if ended is None or chunks.rest or chunks.fault is not None:
        why = "without its last line" if chunks.fault is None else f"early: {chunks.fault}"
        message = f"the file ends {why}, after {walk.walked()} whole entries"
        return Finding(None, Reason.FILE_TRUNCATED, message)
    if ended.entries != walk.walked():
        message = f"the last line counts {ended.entries} entries, the file has {walk.walked()}"
        return Finding(None, Reason.FILE_MALFORMED, message)
    if ended.sha256 != chunks.hexdigest():
        message = "the file's SHA-256 is not the one in its last line"
        return Finding(None, Reason.FILE_DIGEST_MISMATCH, message)
    if walk.tree.size != until:
        message = f"the file ends at {walk.tree.size}, not at {until} as its header says"
        return Finding(None, Reason.FILE_MALFORMED, message)
    return None
