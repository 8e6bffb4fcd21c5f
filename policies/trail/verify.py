"""Verifies a log: a stream of entries is checked for its chain, its columns and openings, and its
head. Knows no database and no network. Memory stays flat: one hash per complete subtree, and one
counter per source.

    verifier = Verifier(log)
    for row in rows: verifier.feed(row)         the first finding ends the walk
    report = verifier.finish(head)

Doesn't look for duplicate ids, which would take unbounded memory: the unique index over `eid`
excludes them, and that column is compared with the bytes.

Longer than most files, because a walk and the join of two walks share the same few values.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import b64, encode
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import Purged
from policies.trail.record import MAX_ENTRY
from policies.trail.spool_chain import core_hash
from policies.trail.stored_entry import (
    MEMBERS,
    SOURCED,
    EntryFinding,
    StoredRow,
    check_columns,
    check_profile,
)

_POSITION = ("log", "seq", "prev", "ts")
_VERSION = b',"v":1}'  # the last member of every entry; compared as bytes, since `True == 1`
_sha256 = hashlib.sha256


class LogHead(NamedTuple):
    """The log's head row: its number of entries, last leaf hash, last time, and frontier."""

    size: int
    last_leaf: bytes
    last_ts: str
    frontier: bytes


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The result of a walk. `total` counts the entries walked, of every kind, and `events` the
    decisions among them, up to the first finding. `broken_at` is the `event_id` of the first entry
    that fails, or its `seq` in digits."""

    valid: bool
    total: int
    events: int
    first_seq: int | None
    last_seq: int | None
    head_hash: str | None
    root_hash: str
    broken_at: str | None
    reason: str | None


_Source = tuple[str, str]
_Counter = tuple[int, str]  # the number of a source's last record, and the base64 of its hash


class Verifier:
    """One walk over the log named `log`, from the entry `start`.

    A long log can be walked in parallel stretches. Each stretch but the last has a power of two as
    its length and starts at a multiple of it. A later stretch assumes what its first entry says of
    the entry before; `join` compares that with what the earlier stretch found.
    """

    def __init__(self, log: str, start: int = 0, after: Purged | None = None) -> None:
        """`after` is the prefix that retention removed: the walk begins behind it, with its tree.
        Raises `ValueError` if its frontier doesn't fit its size."""
        self._log = log
        self._start = start
        self._tree = Frontier() if after is None else after.tree()
        self._base = self._tree.size
        self._expected: tuple[int, bytes] | None = None
        self._last_leaf = b"" if after is None else after.last_leaf
        self._prev: str | None = None if start else b64(self._last_leaf)
        self._ts = ""
        self._first: tuple[str, str] | None = None  # `prev` and `ts` of the first entry
        self._events = 0
        self._sources: dict[_Source, _Counter] = {}
        self._assumed: dict[_Source, _Counter] = {}  # by a later stretch, for `join` to check
        self._broken: tuple[str, str] | None = None

    def feed(self, row: StoredRow) -> bool:
        """Check one entry. False once something was found: feeding more changes nothing."""
        return self.feed_all((row,))

    def feed_all(self, rows: Iterable[StoredRow]) -> bool:
        """Check entries until one fails. True if none did."""
        if self._broken is not None:
            return False
        row = entry = None
        try:
            for row in rows:
                entry = orjson.loads(row.entry)
                self._check(row, entry)
                # An error from here on is one of the iterator, not of an entry.
                row = entry = None  # noqa: PLW2901
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            if row is None:
                raise
            found = str(error) if isinstance(error, EntryFinding) else f"not an entry: {error!r}"
            eid = entry.get("eid") if isinstance(entry, dict) else None
            broken_at = eid if isinstance(eid, str) else str(row.seq)
            self._broken = (broken_at, f"seq {row.seq}: {found}")
            return False
        return True

    def expect(self, size: int, root: bytes) -> None:
        """Expect a checkpoint on the way: at `size` entries, the tree must have this root."""
        self._expected = size, root

    def join(self, later: "Verifier") -> bool:
        """Append a stretch that begins where this one ends. True if nothing is broken."""
        if self._broken is None and later._first is not None:
            self._check_seam(later)
        if self._broken is not None:
            return False
        self._broken = later._broken
        self._tree.extend(later._tree)
        self._events += later._events
        self._sources.update(later._sources)
        if later._tree.size:
            self._last_leaf, self._prev, self._ts = later._last_leaf, later._prev, later._ts
        return self._broken is None

    def reached(self) -> tuple[Frontier, bytes, tuple[str, str] | None]:
        """The tree and last leaf hash so far, and the finding that ended the walk, or None."""
        return self._tree, self._last_leaf, self._broken

    def finish(self, head: LogHead | None = None) -> VerificationReport:
        """The report. Compares the head row with the entries, if one is given."""
        size = self._tree.size
        if self._broken is None and head is not None:
            fault = self._head_fault(head)
            if fault is not None:
                self._broken = (str(min(size, head.size)), fault)
        broken_at, reason = self._broken or (None, None)
        walked = size - self._base
        return VerificationReport(
            valid=self._broken is None,
            total=walked,
            events=self._events,
            first_seq=self._base if walked else None,
            last_seq=size - 1 if walked else None,
            head_hash=self._last_leaf.hex() if size else None,
            root_hash=self._tree.root().hex(),
            broken_at=broken_at,
            reason=reason,
        )

    def _check(self, row: StoredRow, entry: dict[str, Any]) -> None:
        raw = row.entry
        if encode(entry) != raw:
            raise EntryFinding("the bytes are not in the canonical encoding")
        members = entry.keys()
        sourced = members == SOURCED
        if not sourced and members != MEMBERS:
            raise EntryFinding("has other members than an entry")
        if len(raw) > MAX_ENTRY:
            raise EntryFinding(f"has {len(raw)} bytes; the limit is {MAX_ENTRY}")
        check_profile(entry)
        at = self._start + self._tree.size
        # One condition for the usual case; `_check_position` finds out which part of it failed.
        if (
            entry["seq"] != at
            or row.seq != at
            or entry["prev"] != self._prev
            or entry["log"] != self._log
            or entry["ts"] < self._ts
            or not raw.endswith(_VERSION)
            or type(entry["seq"]) is not int
        ):
            self._check_position(row, entry, at)
        leaf = _sha256(b"\0" + raw).digest()
        if row.hash is not None and row.hash != leaf:
            raise EntryFinding("the column `hash` is not the hash of the bytes")
        if row.columns is not None:
            check_columns(row, entry)
        if sourced:
            self._check_source(entry, entry["src"])
        self._tree.append(leaf)
        if self._expected is not None and self._tree.size == self._expected[0]:
            self._check_root(self._expected[1])
        self._last_leaf, self._prev, self._ts = leaf, b64(leaf), entry["ts"]
        if entry["kind"] == "decision":
            self._events += 1

    def _check_root(self, root: bytes) -> None:
        if self._tree.root() != root:
            raise EntryFinding("the tree up to here is not the one that was signed")

    def _check_position(self, row: StoredRow, entry: dict[str, Any], at: int) -> None:
        """Raise what is wrong with an entry's position. The first entry of a later stretch passes:
        `join` checks it."""
        if row.seq > at:
            raise EntryFinding(f"{row.seq - at} entries before this one are missing")
        if row.seq < at:
            raise EntryFinding(f"is at the position of entry {at}")
        if type(entry["seq"]) is not int or entry["seq"] != at:
            raise EntryFinding(f"the entry says seq {entry['seq']!r:.40}")
        if entry["log"] != self._log or not row.entry.endswith(_VERSION):
            raise EntryFinding("belongs to another log, or to another version of the format")
        if self._prev is None:
            self._first = (entry["prev"], entry["ts"])
            return
        if entry["prev"] != self._prev:
            raise EntryFinding("`prev` is not the hash of the entry before")
        raise EntryFinding("its time is before that of the entry before")

    def _check_source(self, entry: dict[str, Any], src: dict[str, Any]) -> None:
        """Check the enforcement point's own counter and chain, which run beside the log's."""
        source = (src["id"], src["inst"])
        before = self._sources.get(source)
        if before is None:
            # The source may have earlier records, in an earlier stretch or a purged prefix. Assume
            # what this record says of them. A walk from the first entry assumes nothing.
            begun = self._start or self._base
            before = (src["n"] - 1, src["prev"]) if begun else (-1, "")
            self._assumed[source] = before
        _follows(source, before, (src["n"] - 1, src["prev"]))
        core = encode({name: entry[name] for name in entry if name not in _POSITION})
        self._sources[source] = (src["n"], b64(core_hash(core)))

    def _check_seam(self, later: "Verifier") -> None:
        assert later._first is not None
        prev, ts = later._first
        try:
            if prev != self._prev:
                raise EntryFinding("`prev` is not the hash of the entry before")
            if ts < self._ts:
                raise EntryFinding("its time is before that of the entry before")
            for source, assumed in later._assumed.items():
                _follows(source, self._sources.get(source, (-1, "")), assumed)
        except EntryFinding as finding:
            self._broken = (str(later._start), f"seq {later._start}: {finding}")

    def _head_fault(self, head: LogHead) -> str | None:
        size = self._tree.size
        if head.size != size:
            return f"the head counts {head.size} entries; the log has {size}"
        if size and head.last_leaf != self._last_leaf:
            return "the head's last leaf is not the last entry's hash"
        if head.frontier != self._tree.to_bytes():
            return "the head's frontier is not that of the entries"
        if head.last_ts != self._ts:
            return "the head's time is not the last entry's"
        return None


def _follows(source: _Source, last: _Counter, cited: _Counter) -> None:
    """Check that a source's record follows `last`. `cited` is what the record says of its
    predecessor. Raises `EntryFinding`."""
    if cited[0] != last[0]:
        raise EntryFinding(f"source `{source[0]}` counts {cited[0] + 1} after {last[0]}")
    if cited[1] != last[1]:
        raise EntryFinding(
            f"`src.prev` is not the hash of record {last[0]} of source `{source[0]}`"
        )
