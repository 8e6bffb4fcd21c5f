"""Whether a log is what it was: a stream of entries held against itself, its columns, its openings
and its head. Knows no database and no network; memory stays flat, one hash a subtree and one
counter a source.

    verifier = Verifier(log)
    for row in rows: verifier.feed(row)         the first finding ends the walk
    report = verifier.finish(head)

Duplicate ids are not looked for here: that would cost memory without bound. They are excluded by
the unique index over `eid`, whose column is held against the bytes.

Longer than a file should be: a walk, and the seam where two walks meet, are judged by the same few
values, and read best beside each other.
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
from policies.trail.stored_entry import MEMBERS, SOURCED, EntryFinding, StoredRow, columns, profile

_PLACE = ("log", "seq", "prev", "ts")
_VERSION = b',"v":1}'  # the last member of every entry; `true` would equal 1, and is not it
_sha256 = hashlib.sha256


class LogHead(NamedTuple):
    """What the log's head row says: entries, last leaf hash, time of the last, frontier."""

    size: int
    last_leaf: bytes
    last_ts: str
    frontier: bytes


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """`total` counts entries of every kind, `events` decisions, both of what was walked, up to the
    first finding.
    `broken_at` is the `event_id`, or the `seq` in digits, of the first that fails."""

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
_Counter = tuple[int, str]  # the number of a source's record, and the base64 of its hash


class Verifier:
    """One walk over the log named `log`, from the entry `start`.

    A long log can be walked in stretches, side by side: each but the last a power of two long, and
    starting at a multiple of it. A later stretch takes for given what its first entry says of the
    one before; `join` holds it against what the earlier stretch found.
    """

    def __init__(self, log: str, start: int = 0, after: Purged | None = None) -> None:
        """`after`: the prefix that retention removed; the walk begins behind it, with its tree.
        `ValueError` where that is none."""
        self._log = log
        self._start = start
        self._tree = Frontier() if after is None else after.tree()
        self._base = self._tree.size
        self._due: tuple[int, bytes] | None = None
        self._last_leaf = b"" if after is None else after.last_leaf
        self._prev: str | None = None if start else b64(self._last_leaf)
        self._ts = ""
        self._first: tuple[str, str] | None = None  # `prev` and `ts` of the first entry
        self._events = 0
        self._sources: dict[_Source, _Counter] = {}
        self._given: dict[_Source, _Counter] = {}  # what a later stretch took for given
        self._broken: tuple[str, str] | None = None

    def feed(self, row: StoredRow) -> bool:
        """False once something was found: feeding more changes nothing."""
        return self.feed_all((row,))

    def feed_all(self, rows: Iterable[StoredRow]) -> bool:
        """Feed until one fails; whether none did."""
        if self._broken is not None:
            return False
        row = entry = None
        try:
            for row in rows:
                entry = orjson.loads(row.entry)
                self._judge(row, entry)
                row = entry = None  # noqa: PLW2901  # what fails now is the rows' own trouble
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            if row is None:  # the rows' own trouble, not an entry's
                raise
            found = str(error) if isinstance(error, EntryFinding) else f"not an entry: {error!r}"
            eid = entry.get("eid") if isinstance(entry, dict) else None
            named = eid if isinstance(eid, str) else str(row.seq)
            self._broken = (named, f"seq {row.seq}: {found}")
            return False
        return True

    def expect(self, size: int, root: bytes) -> None:
        """A checkpoint that the walk passes: at `size` entries the tree must have this root."""
        self._due = size, root

    def join(self, later: "Verifier") -> bool:
        """Take on a stretch that begins where this one ends; whether nothing is broken."""
        if self._broken is None and later._first is not None:
            self._seam(later)
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
        """The tree and the last leaf so far, and the finding that ended the walk, or None."""
        return self._tree, self._last_leaf, self._broken

    def finish(self, head: LogHead | None = None) -> VerificationReport:
        """The report, with the head row held against what was walked."""
        size = self._tree.size
        if self._broken is None and head is not None:
            fault = self._against(head)
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

    def _judge(self, row: StoredRow, entry: dict[str, Any]) -> None:
        raw = row.entry
        if encode(entry) != raw:
            raise EntryFinding("the bytes are not in the canonical encoding")
        members = entry.keys()
        sourced = members == SOURCED
        if not sourced and members != MEMBERS:
            raise EntryFinding("has members that an entry has not, or lacks some")
        if len(raw) > MAX_ENTRY:
            raise EntryFinding(f"larger than {MAX_ENTRY} bytes")
        profile(entry)
        at = self._start + self._tree.size
        if (
            entry["seq"] != at
            or row.seq != at
            or entry["prev"] != self._prev
            or entry["log"] != self._log
            or entry["ts"] < self._ts
            or not raw.endswith(_VERSION)
            or type(entry["seq"]) is not int
        ):
            self._place(row, entry, at)
        leaf = _sha256(b"\0" + raw).digest()
        if row.hash is not None and row.hash != leaf:
            raise EntryFinding("the column `hash` is not the hash of the bytes")
        if row.columns is not None:
            columns(row, entry)
        if sourced:
            self._source(entry, entry["src"])
        self._tree.append(leaf)
        if self._due is not None and self._tree.size == self._due[0]:
            self._met()
        self._last_leaf, self._prev, self._ts = leaf, b64(leaf), entry["ts"]
        if entry["kind"] == "decision":
            self._events += 1

    def _met(self) -> None:
        assert self._due is not None
        if self._tree.root() != self._due[1]:
            raise EntryFinding("the tree up to here is not the one that was signed")

    def _place(self, row: StoredRow, entry: dict[str, Any], at: int) -> None:
        """Say what of an entry's place is wrong; nothing, at the start of a later stretch."""
        if row.seq > at:
            raise EntryFinding(f"{row.seq - at} entries before this one are missing")
        if row.seq < at:
            raise EntryFinding(f"stands where entry {at} should")
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

    def _source(self, entry: dict[str, Any], src: dict[str, Any]) -> None:
        """The enforcement point's own counter and chain, which run beside the log's."""
        source = (src["id"], src["inst"])
        before = self._sources.get(source)
        if before is None:
            # Of a source that was met before the start, or before the purge, nothing is known.
            begun = self._start or self._base
            before = (src["n"] - 1, src["prev"]) if begun else (-1, "")
            self._given[source] = before
        _follows(source, before, (src["n"] - 1, src["prev"]))
        core = encode({name: entry[name] for name in entry if name not in _PLACE})
        self._sources[source] = (src["n"], b64(core_hash(core)))

    def _seam(self, later: "Verifier") -> None:
        assert later._first is not None
        prev, ts = later._first
        try:
            if prev != self._prev:
                raise EntryFinding("`prev` is not the hash of the entry before")
            if ts < self._ts:
                raise EntryFinding("its time is before that of the entry before")
            for source, given in later._given.items():
                _follows(source, self._sources.get(source, (-1, "")), given)
        except EntryFinding as finding:
            self._broken = (str(later._start), f"seq {later._start}: {finding}")

    def _against(self, head: LogHead) -> str | None:
        size = self._tree.size
        if head.size != size:
            return f"the head counts {head.size} entries, and {size} are there"
        if size and head.last_leaf != self._last_leaf:
            return "the head's last leaf is not the last entry's hash"
        if head.frontier != self._tree.to_bytes():
            return "the head's frontier is not that of the entries"
        if head.last_ts != self._ts:
            return "the head's time is not the last entry's"
        return None


def _follows(source: _Source, last: _Counter, said: _Counter) -> None:
    """Whether a source's record may follow: `said` is what it says of the one before, `last` what
    that one was."""
    if said[0] != last[0]:
        raise EntryFinding(f"source `{source[0]}` counts {said[0] + 1} after {last[0]}")
    if said[1] != last[1]:
        raise EntryFinding(
            f"`src.prev` is not the hash of record {last[0]} of source `{source[0]}`"
        )
