"""Whether a log is what it was: a stream of entries held against itself, its columns, its openings
and its head. Knows no database and no network; memory stays flat, one hash a subtree and one
counter a source.

    verifier = Verifier(log)
    for row in rows: verifier.feed(row)         the first finding ends the walk
    report = verifier.finish(head)

Duplicate ids are not looked for here: that would cost memory without bound. They are excluded by
the unique index over `eid`, whose column is held against the bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from policies.commitment import opens
from policies.entry import Index, index_of
from policies.ground.canonical import MAX_INTEGER, b64, encode
from policies.record import MAX_ENTRY
from policies.source import core_hash
from policies.tree import Frontier, leaf_hash

_MEMBERS = frozenset({"cm", "eid", "kind", "log", "masked", "prev", "pub", "seq", "ts", "v"})
_SOURCED = _MEMBERS | {"src"}
_PLACE = ("log", "seq", "prev", "ts")


class Row(NamedTuple):
    """A stored entry: its bytes, and what stands beside them. `hash`, `columns` and `openings` are
    None where they are not to be held against the bytes (a stream of bare entries)."""

    seq: int
    entry: bytes
    hash: bytes | None = None
    columns: Index | None = None
    openings: bytes | None = None


class Head(NamedTuple):
    """What the log's head row says: entries, last leaf hash, time of the last, frontier."""

    size: int
    last_leaf: bytes
    last_ts: str
    frontier: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """`total` counts entries of every kind, `events` decisions, both up to the first finding.
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


class _Finding(Exception):
    """What is wrong with an entry."""


class Verifier:
    """One walk over the log named `log` (None: whatever the first entry says)."""

    def __init__(self, log: str | None = None) -> None:
        self._log = log
        self._tree = Frontier()
        self._last_leaf = b""
        self._prev = ""
        self._ts = ""
        self._events = 0
        self._sources: dict[tuple[str, str], tuple[int, str]] = {}
        self._broken: tuple[str, str] | None = None

    def feed(self, row: Row) -> bool:
        """False once something was found: feeding more changes nothing."""
        if self._broken is not None:
            return False
        entry: Any = None
        try:
            entry = orjson.loads(row.entry)
            self._judge(row, entry)
        except (_Finding, ValueError, TypeError, LookupError, AttributeError) as error:
            found = str(error) if isinstance(error, _Finding) else f"not an entry: {error!r}"
            eid = entry.get("eid") if isinstance(entry, dict) else None
            named = eid if isinstance(eid, str) else str(row.seq)
            self._broken = (named, f"seq {row.seq}: {found}")
            return False
        return True

    def feed_all(self, rows: Iterable[Row]) -> bool:
        """Feed until one fails; whether none did."""
        return all(self.feed(row) for row in rows)

    def finish(self, head: Head | None = None) -> Report:
        """The report, with the head row held against what was walked."""
        size = self._tree.size
        if self._broken is None and head is not None:
            fault = self._against(head)
            if fault is not None:
                self._broken = (str(min(size, head.size)), fault)
        broken_at, reason = self._broken or (None, None)
        return Report(
            valid=self._broken is None,
            total=size,
            events=self._events,
            first_seq=0 if size else None,
            last_seq=size - 1 if size else None,
            head_hash=self._last_leaf.hex() if size else None,
            root_hash=self._tree.root().hex(),
            broken_at=broken_at,
            reason=reason,
        )

    def _judge(self, row: Row, entry: dict[str, Any]) -> None:
        raw = row.entry
        if len(raw) > MAX_ENTRY:
            raise _Finding(f"larger than {MAX_ENTRY} bytes")
        if encode(entry) != raw:
            raise _Finding("the bytes are not in the canonical encoding")
        src = entry.get("src")
        if entry.keys() != (_MEMBERS if src is None else _SOURCED):
            raise _Finding("has members that an entry has not, or lacks some")
        _profile(entry)
        self._place(row, entry)
        leaf = leaf_hash(raw)
        if row.hash is not None and row.hash != leaf:
            raise _Finding("the column `hash` is not the hash of the bytes")
        if row.columns is not None:
            _columns(row, entry)
        if src is not None:
            self._source(entry, src)
        self._tree.append(leaf)
        self._last_leaf, self._prev, self._ts = leaf, b64(leaf), entry["ts"]
        if entry["kind"] == "decision":
            self._events += 1

    def _place(self, row: Row, entry: dict[str, Any]) -> None:
        size = self._tree.size
        if row.seq != size:
            raise _Finding(f"{row.seq - size} entries before this one are missing")
        if entry["seq"] != size:
            raise _Finding(f"the entry says seq {entry['seq']}")
        if entry["prev"] != self._prev:
            raise _Finding("`prev` is not the hash of the entry before")
        if self._log is None:
            self._log = entry["log"]
        if entry["log"] != self._log or entry["v"] != 1:
            raise _Finding("belongs to another log, or to another version of the format")
        if entry["ts"] < self._ts:
            raise _Finding("its time is before that of the entry before")

    def _source(self, entry: dict[str, Any], src: dict[str, Any]) -> None:
        """The enforcement point's own counter and chain, which run beside the log's."""
        source = (src["id"], src["inst"])
        n, prev = self._sources.get(source, (-1, ""))
        if src["n"] != n + 1:
            raise _Finding(f"source `{source[0]}` counts {src['n']} after {n}")
        if src["prev"] != prev:
            raise _Finding(f"`src.prev` is not the hash of record {n} of source `{source[0]}`")
        core = encode({name: entry[name] for name in entry if name not in _PLACE})
        self._sources[source] = (src["n"], b64(core_hash(core)))

    def _against(self, head: Head) -> str | None:
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


def _profile(value: dict[str, Any]) -> None:
    """The encoding's profile, as far as equal re-encoding does not show it: no floats, no integer
    beyond 53 bits, and keys as they must be. One pass, no recursion into what holds only text."""
    joined = "".join(value)
    if not joined.isascii() or not joined.translate(_KEY_CHARACTERS) == "" or "" in value:
        raise _Finding("has a key outside `[a-z0-9_.:-]`")
    for member in value.values():
        kind = type(member)
        if kind is str or member is None or kind is bool:
            continue
        if kind is dict:
            _profile(member)
        elif kind is list:
            _profile({str(at): item for at, item in enumerate(member)})
        elif kind is not int or not -MAX_INTEGER <= member <= MAX_INTEGER:
            raise _Finding(f"holds {member!r}, which the log's encoding has not")


_KEY_CHARACTERS = dict.fromkeys(map(ord, "abcdefghijklmnopqrstuvwxyz0123456789_.:-"))


def _columns(row: Row, entry: dict[str, Any]) -> None:
    derived = index_of(entry)
    if row.columns != derived:
        assert row.columns is not None
        for name, stored, meant in zip(Index._fields, row.columns, derived, strict=True):
            if stored != meant:
                raise _Finding(f"the column `{name}` says {stored!r}, the bytes {meant!r}")
    if row.openings is None:
        return
    openings = orjson.loads(row.openings)
    for path in entry["cm"]:
        if path not in openings:
            raise _Finding(f"the opening of `{path}` is missing, and nothing says it was erased")
    for path, opening in openings.items():
        if not opens(entry["cm"], path, opening):
            raise _Finding(f"the opening of `{path}` does not open its commitment")
