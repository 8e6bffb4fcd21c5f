"""What retention leaves of a prefix that it removed: the `purge` entry, and the anchor that a
verification starts from. Knows neither when a prefix may go nor how it goes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import orjson

from policies.ground.canonical import b64, encode, micros, rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.merkle_tree import Frontier
from policies.trail.record import Record, make_record

KIND = "purge"


@dataclass(frozen=True, slots=True)
class Purged:
    """A prefix of `size` entries that is gone: the tree at that size, the hash of its last leaf.
    `count` of them went this time, all recorded before `cutoff` (microseconds since 1970 UTC)."""

    size: int
    root: bytes
    frontier: bytes
    last_leaf: bytes
    cutoff: int
    count: int

    def tree(self) -> Frontier:
        """`ValueError` where it is none of this size."""
        return Frontier.from_bytes(self.size, self.frontier)

    def pub(self) -> dict[str, Any]:
        """The fields in clear of the `purge` entry. `ValueError` as in `tree`."""
        return {
            "count": self.count,
            "cutoff": rfc3339(self.cutoff),
            "frontier": [b64(each) for each in self.tree().hashes],
            "last": b64(self.last_leaf),
            "root": b64(self.root),
            "size": self.size,
        }

    def record(self, record_id: str) -> Record:
        return make_record(KIND, record_id, encode(self.pub()))

    def checkpoint(self, log: str) -> Checkpoint:
        return Checkpoint(log, self.size, self.root)


@dataclass(frozen=True, slots=True)
class Anchor:
    """What was purged last, the place of its `purge` entry, and the signed notes: of the size that
    was cut at, and of one with that entry in it (None until it is signed). `purged_at` is the
    entry's time, `finished_at` when the last row was gone; microseconds since 1970 UTC."""

    seq: int
    purged: Purged
    purged_at: int
    anchor_note: str
    cover_note: str | None
    finished_at: int | None

    def fault(self, log: str, publics: Collection[bytes]) -> str | None:
        """What is wrong with it in itself, or None. `publics` are the keys that the log was
        signed by; without one, nothing that is signed can be believed."""
        purged = self.purged
        if not 0 < purged.count <= purged.size <= self.seq:
            return "the anchor counts what can't be"
        try:
            purged.pub(), rfc3339(self.purged_at)
            if purged.tree().root() != purged.root:
                return "the anchor's frontier does not give its root"
            if not publics:
                return "there is no key to hold the anchor's signature against"
            if checkpoint.read(self.anchor_note, log, publics) != purged.checkpoint(log):
                return "the anchor's note is of another checkpoint"
            if self.cover_note is None:
                return None if self.finished_at is None else "rows went that no checkpoint covers"
            if self.cover(log, publics).size <= self.seq:
                return "the anchor's checkpoint does not cover the `purge` entry"
        except BadNote as error:
            return f"the anchor: {error}"
        except (ValueError, OverflowError) as error:
            return f"the anchor can't be read: {error}"
        return None

    def cover(self, log: str, publics: Collection[bytes]) -> Checkpoint:
        """What the cover note says; `BadNote` where it is not signed by one of the log's keys."""
        return checkpoint.read(self.cover_note or "", log, publics)

    def said_by(self, entry: bytes) -> bool:
        """Whether a stored entry is the `purge` entry of this anchor."""
        try:
            said = orjson.loads(entry)
            return bool(
                (said["kind"], said["seq"], said["pub"]) == (KIND, self.seq, self.purged.pub())
                and micros(said["ts"]) == self.purged_at
            )
        except (ValueError, TypeError, LookupError, OverflowError):
            return False
