"""Verifies a log: checks the chain of its entries, their columns and openings, and its head.

Knows no database and no network. Memory stays flat: one hash per complete subtree, one counter per
source, and a bit for each entry whose opening is missing.

    verifier = Verifier(log)
    for row in rows: verifier.feed(row)         the first finding ends the walk
    report = verifier.finish(head)

Doesn't look for duplicate ids, which would take unbounded memory: the unique index over `eid`
excludes them, and that column is compared with the bytes.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from policies.ground.canonical import b64, encode
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import Purged
from policies.trail.spool_chain import core_hash
from policies.trail.stored_entry import (
    EntryFinding,
    StoredRow,
    check_columns,
    check_entry,
    load_entry,
)
from policies.trail.walk.erasures import KIND as REDACT
from policies.trail.walk.erasures import Erasures, erased_ranges
from policies.trail.walk.silences import Silences

_POSITION = ("log", "seq", "prev", "ts")
# The last member of every entry. Compared as bytes, since `True == 1`.
_VERSION = b',"v":1}'
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
    that fails, or its `seq` in digits. `reason` is the text of `finding`."""

    valid: bool
    total: int
    events: int
    first_seq: int | None
    last_seq: int | None
    head_hash: str | None
    root_hash: str
    broken_at: str | None
    reason: str | None
    finding: Finding | None = None


_Source = tuple[str, str]
_ChainEnd = tuple[int, str]  # the number of a source's last record, and the base64 of its hash


class Verifier:
    """One walk over the log named `log`: from its first entry, or from the one that follows a
    purged prefix."""

    def __init__(self, log: str, *, after: Purged | None = None) -> None:
        """`after` is the purged prefix; the walk continues its tree. Raises `ValueError` if its
        frontier doesn't fit its size."""
        self._log = log
        self._tree = Frontier() if after is None else after.tree()
        self._base = self._tree.size
        self._expected: dict[int, set[bytes]] = {}
        self._last_leaf = b"" if after is None else after.last_leaf
        self._prev = b64(self._last_leaf)
        self._ts = ""
        self._events = 0
        self._sources: dict[_Source, _ChainEnd] = {}
        self._broken: Finding | None = None
        self.erasures = Erasures()
        """The missing openings so far, without those that a `redact` entry has excused."""
        self.silences = Silences()

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
                entry = load_entry(row.entry)
                self._check(row, entry)
                # From here on, an error comes from the iterator, such as a lost connection to the
                # database. It says nothing about the log, so it is raised.
                row = entry = None  # noqa: PLW2901
        # The bytes may be anything: what decoding or a look-up raises on them is a finding too.
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            if row is None:
                raise
            found, reason = f"not an entry: {error!r}", Reason.NOT_AN_ENTRY
            if isinstance(error, EntryFinding):
                found, reason = str(error), error.reason
            eid = entry.get("eid") if isinstance(entry, dict) else None
            eid = eid if isinstance(eid, str) else None
            self._broken = Finding(row.seq, reason, f"seq {row.seq}: {found}", eid)
            return False
        return True

    def expect(self, size: int, root: bytes) -> None:
        """Expect a checkpoint during the walk: at `size` entries, the tree must have this root. One
        of the entries before the walk's first is not looked for."""
        self._expected.setdefault(size, set()).add(root)

    def reached(self) -> tuple[Frontier, bytes, Finding | None]:
        """The tree and last leaf hash so far, and the finding that ended the walk, or None."""
        return self._tree, self._last_leaf, self._broken

    def finish(self, head: LogHead | None = None) -> VerificationReport:
        """The report. Compares the head row with the entries, if one is given."""
        size = self._tree.size
        if self._broken is None and head is not None:
            fault = self._head_fault(head)
            if fault is not None:
                self._broken = Finding(min(size, head.size), Reason.HEAD_MISMATCH, fault)
        if self._broken is None:
            # Only now: the `redact` entry comes after the entries whose openings it erased.
            self._broken = next(iter(self.erasures.findings(1)), None)
        found = self._broken
        walked = size - self._base
        return VerificationReport(
            valid=found is None,
            total=walked,
            events=self._events,
            first_seq=self._base if walked else None,
            last_seq=size - 1 if walked else None,
            head_hash=self._last_leaf.hex() if size else None,
            root_hash=self._tree.root().hex(),
            broken_at=None if found is None else found.place,
            reason=None if found is None else found.message,
            finding=found,
        )

    def _check(self, row: StoredRow, entry: dict[str, Any]) -> None:
        raw = row.entry
        sourced = check_entry(raw, entry)
        seq = self._tree.size
        # One condition covers the usual case; `_position_fault` finds out which part of it failed.
        if (
            entry["seq"] != seq
            or row.seq != seq
            or entry["prev"] != self._prev
            or entry["log"] != self._log
            or entry["ts"] < self._ts
            or not raw.endswith(_VERSION)
            or type(entry["seq"]) is not int
        ):
            raise self._position_fault(row, entry, seq)
        leaf = _sha256(b"\0" + raw).digest()
        if row.hash is not None and row.hash != leaf:
            raise EntryFinding(
                Reason.HASH_MISMATCH, "the column `hash` is not the hash of the bytes"
            )
        complete = True
        if row.columns is not None:
            complete = check_columns(row, entry)
        if sourced:
            self._check_source(entry, entry["src"])
        # From here on the entry counts: a check that fails above leaves the walk unchanged.
        self._tree.append(leaf)
        if self._tree.size in self._expected:
            self._check_root(self._expected[self._tree.size])
        self.silences.between(seq, self._ts, entry["ts"])
        self._last_leaf, self._prev, self._ts = leaf, b64(leaf), entry["ts"]
        if entry["kind"] == "decision":
            self._events += 1
        if not complete:
            self.erasures.missing(seq)
        if entry["kind"] == REDACT:
            for first, last in erased_ranges(entry):
                self.erasures.redact(first, last)

    def _check_root(self, roots: set[bytes]) -> None:
        if roots != {self._tree.root()}:
            raise EntryFinding(
                Reason.ROOT_MISMATCH, "the tree up to here is not the one that was signed"
            )

    def _position_fault(self, row: StoredRow, entry: dict[str, Any], seq: int) -> EntryFinding:
        """What is wrong with an entry that should be number `seq`."""
        if row.seq > seq:
            missing = f"{row.seq - seq} entries before this one are missing"
            return EntryFinding(Reason.ENTRIES_MISSING, missing)
        if row.seq < seq:
            return EntryFinding(Reason.ENTRY_MISPLACED, f"is at the position of entry {seq}")
        if type(entry["seq"]) is not int or entry["seq"] != seq:
            return EntryFinding(Reason.WRONG_SEQ, f"the entry says seq {entry['seq']!r:.40}")
        if entry["log"] != self._log or not row.entry.endswith(_VERSION):
            other = "belongs to another log, or to another version of the format"
            return EntryFinding(Reason.WRONG_LOG, other)
        if entry["prev"] != self._prev:
            return EntryFinding(Reason.CHAIN_BROKEN, "`prev` is not the hash of the entry before")
        return EntryFinding(Reason.TIME_REVERSED, "its time is before that of the entry before")

    def _check_source(self, entry: dict[str, Any], src: dict[str, Any]) -> None:
        """Check the enforcement point's own counter and chain, which run beside the log's."""
        source = (src["id"], src["inst"])
        n, prev = src["n"], src["prev"]
        before = self._sources.get(source)
        if before is None:
            # After a purge the source's earlier records may be gone, so take this one's word for
            # them. In a walk from the first entry, each source has to begin with number 0.
            before = (n - 1, prev) if self._base and n > 0 else (-1, "")
        if n - 1 != before[0]:
            raise EntryFinding(
                Reason.SOURCE_GAP, f"source `{source[0]}` counts {n} after {before[0]}"
            )
        if prev != before[1]:
            raise EntryFinding(
                Reason.SOURCE_CHAIN_BROKEN,
                f"`src.prev` is not the hash of record {before[0]} of source `{source[0]}`",
            )
        core = encode({name: entry[name] for name in entry if name not in _POSITION})
        self._sources[source] = (n, b64(core_hash(core)))

    def _head_fault(self, head: LogHead) -> str | None:
        # The entries alone can't show that the newest of them were removed; the head can.
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
