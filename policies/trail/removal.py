"""Makes the entries about removals. A `redact` entry tells which openings were erased, for what
reason, and who asked for it. A `purge` entry tells that retention removed the oldest entries, and
keeps the hashes from which verification of the remaining log starts.

A `redact` entry names entries by their numbers only. Nothing in it may tell whose values were
erased: the log keeps it forever. `walk/gaps.py` reads it again when a log is verified. Doesn't know
when entries may be removed, or how.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from policies.ground.canonical import b64, encode, micros, rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint, is_origin_of
from policies.trail.merkle_tree import Frontier
from policies.trail.record import Record, make_record
from policies.trail.walk.gaps import REDACT

MAX_SEQS = 1024
"""The most entries that one `redact` entry names. Even if no two of them are consecutive, it stays
below 64 KiB."""


def redact_record(by: str, reason: str, seqs: Iterable[int], *, record_id: str) -> Record:
    """Return the record that the openings of some entries were erased. `seqs` are the numbers of at
    most `MAX_SEQS` entries, in order; `by` is the id of the key that asked for it."""
    return make_record(
        REDACT, record_id, encode({"by": by, "events": ranges_of(seqs), "reason": reason})
    )


def ranges_of(seqs: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as ranges `[first, last]`, both ends included."""
    ranges: list[list[int]] = []
    for seq in seqs:
        # A range covers only what was erased: with one entry more, it would excuse the silent loss
        # of that entry's opening.
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ranges


PURGE = "purge"


@dataclass(frozen=True, slots=True)
class Purged:
    """The entries that retention has removed from a log's beginning. There are `size` of them in
    all; `root`, `frontier` and `last_leaf` are the root hash and frontier of their Merkle tree and
    their last leaf hash. The last purge removed `count` of them, all recorded before `cutoff`
    (microseconds since 1970 UTC)."""

    size: int
    root: bytes
    frontier: bytes
    last_leaf: bytes
    cutoff: int
    count: int

    def tree(self) -> Frontier:
        """Return the Merkle tree of the removed entries. Raises `ValueError` if `frontier` does not
        fit `size`."""
        return Frontier.from_bytes(self.size, self.frontier)

    def pub(self) -> dict[str, Any]:
        """Return the member `pub` of the `purge` entry. Raises `ValueError` as `tree` does."""
        return {
            "count": self.count,
            "cutoff": rfc3339(self.cutoff),
            "frontier": [b64(each) for each in self.tree().hashes],
            "last": b64(self.last_leaf),
            "root": b64(self.root),
            "size": self.size,
        }

    def record(self, record_id: str) -> Record:
        return make_record(PURGE, record_id, encode(self.pub()))

    def checkpoint(self, log: str) -> Checkpoint:
        return Checkpoint(log, self.size, self.root)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last purge, from which verification of the remaining log starts: `purged` are the entries
    that are gone, `seq` and `purged_at` are the number and time of the `purge` entry. `anchor_note`
    is the signed checkpoint at `purged.size`; `cover_note` is a signed checkpoint that covers the
    `purge` entry, None until there is one. `finished_at` is when the last row was deleted. Times
    are in microseconds since 1970 UTC."""

    seq: int
    purged: Purged
    purged_at: int
    anchor_note: str
    cover_note: str | None
    finished_at: int | None

    def fault(self, log: str, publics: Collection[bytes]) -> str | None:
        """Return how the anchor contradicts itself, None if it doesn't. `publics` are the keys that
        have signed the log; without any, no signature can be trusted."""
        purged = self.purged
        if not 0 < purged.count <= purged.size <= self.seq:
            return (
                f"the anchor's counts contradict each other: {purged.count} entries of a prefix of "
                f"{purged.size}, recorded at seq {self.seq}"
            )
        try:
            # These raise if a number or time is out of range, before any of them is compared.
            purged.pub(), rfc3339(self.purged_at)
            # With another tree's frontier, verification would continue over other entries.
            if purged.tree().root() != purged.root:
                return "the anchor's frontier does not hash to its root"
            if not publics:
                return "there is no key to verify the anchor's signature with"
            if _of_log(self.anchor_note, log, publics)[1:] != purged.checkpoint(log)[1:]:
                return "the anchor's note signs another checkpoint"
            # A purge first signs a checkpoint that covers its entry, then deletes rows: a crash in
            # between leaves rows to delete, but never a gap without that checkpoint.
            if self.cover_note is None:
                return (
                    None
                    if self.finished_at is None
                    else "rows were deleted without a checkpoint that covers the `purge` entry"
                )
            if self.cover(log, publics).size <= self.seq:
                return "the anchor's checkpoint does not cover the `purge` entry"
        except BadNote as error:
            return f"the anchor: {error}"
        except (ValueError, OverflowError) as error:
            return f"the anchor can't be read: {error}"
        return None

    def cover(self, log: str, publics: Collection[bytes]) -> Checkpoint:
        """Return the checkpoint in `cover_note`, verified. Raises `BadNote` unless one of the keys
        in `publics` signed it."""
        return _of_log(self.cover_note or "", log, publics)

    def matches_entry(self, entry: bytes) -> bool:
        """Return whether `entry`, as stored, is the `purge` entry of this anchor."""
        try:
            decoded = orjson.loads(entry)
            return bool(
                (decoded["kind"], decoded["seq"], decoded["pub"])
                == (PURGE, self.seq, self.purged.pub())
                and micros(decoded["ts"]) == self.purged_at
            )
        except (ValueError, TypeError, LookupError, OverflowError):
            return False  # not an entry at all


def _of_log(note: str, log: str, publics: Collection[bytes]) -> Checkpoint:
    """Return the checkpoint in a note, verified to be of this log in any of its incarnations.
    Raises `BadNote`."""
    origin = checkpoint.unverified(note).origin
    return checkpoint.read(note, origin if is_origin_of(origin, log) else log, publics)
