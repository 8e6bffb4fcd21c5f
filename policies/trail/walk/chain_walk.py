"""Follows a log's entries by their hashes alone, from any entry on. Each entry cites the hash of
the one before it.

    walk = ChainWalk(log, first)
    for seq, raw in rows: entry = walk.take(seq, raw)       `EntryFinding` if one does not follow
    walk.last_leaf

If the last entry is proven to be in a signed tree, the chain proves all entries before it, back to
the first: each `prev` is the hash of the entry before, and that entry holds the next hash. `verify`
checks more than that (columns, openings, spools, the entries' form), but a reader of the entries
needs no more. Knows no database.
"""

import hashlib
from binascii import b2a_base64
from typing import Any, NoReturn

from policies.trail.entry import EntryFinding, load_entry
from policies.trail.findings import Reason

_sha256 = hashlib.sha256


class ChainWalk:
    """Follows the log named `log`, beginning with entry number `first`. `last_leaf` is the leaf
    hash of the last entry taken. If it is empty at the beginning, the first entry's `prev` is taken
    on trust."""

    def __init__(self, log: str, first: int, last_leaf: bytes = b"") -> None:
        self.last_leaf = last_leaf
        self.next_seq = first
        self._log = log

    def take(self, seq: int, raw: bytes) -> dict[str, Any]:
        """Check that `raw` is the next entry, number `seq`, and return it decoded. Raises
        `EntryFinding`."""
        expected = self.next_seq
        if seq != expected:
            self.missing(seq)
        try:
            entry: dict[str, Any] = load_entry(raw)
            place = (entry["seq"], entry["log"], entry["prev"])
            if not (type(entry["eid"]) is str and type(entry["kind"]) is str):
                raise TypeError("`eid` and `kind` are texts")
            leaf = _sha256(b"\0" + raw).digest()
        except (ValueError, TypeError, LookupError) as error:
            found = f"seq {seq}: not an entry: {error!r:.200}"
            raise EntryFinding(Reason.NOT_AN_ENTRY, found) from error
        known = bool(self.last_leaf) or not seq
        prev = b2a_base64(self.last_leaf, newline=False).decode() if known else place[2]
        if place != (expected, self._log, prev):
            raise self._misplaced(seq, place)
        self.last_leaf = leaf
        self.next_seq = seq + 1
        return entry

    def missing(self, until: int) -> NoReturn:
        """Raise the `EntryFinding` that all entries from the next one up to `until`, exclusive, are
        missing."""
        last = f" to {until - 1}" * (until > self.next_seq + 1)
        found = f"seq {self.next_seq}{last}: missing"
        raise EntryFinding(Reason.ENTRIES_MISSING, found)

    def _misplaced(self, seq: int, place: tuple[object, ...]) -> EntryFinding:
        if place[0] != seq:
            found = f"seq {seq}: the entry says seq {place[0]!r:.40}"
            return EntryFinding(Reason.WRONG_SEQ, found)
        if place[1] != self._log:
            return EntryFinding(Reason.WRONG_LOG, f"seq {seq}: belongs to another log")
        return EntryFinding(
            Reason.CHAIN_BROKEN, f"seq {seq}: `prev` is not the hash of the entry before"
        )
