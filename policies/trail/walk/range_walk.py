"""Verifies a range of a log's entries: lines of an export, or rows of a database.

    walk = RangeWalk()                          or `before=`, where it is known what precedes
    walk.feed(chunk of lines)                   stops at the first finding
    walk.take(rows)                             the same for rows
    result = walk.result()                      `JoinedWalk.join` takes the results in order

Questions that only the entries before the range can answer (is `prev` right? does a source
continue?) are noted as claims of the range's first entry, or of a source's first record, for
`JoinedWalk` to compare. Lines other than entries are noted in order, with the tree up to their
place.
"""

import hashlib
from array import array
from binascii import b2a_base64
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from policies.trail.entry import (
    EntryFinding,
    StoredRow,
    check_beside,
    check_entry,
    check_openings,
    load_entry,
)
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.coding import plain_entry
from policies.trail.walk.columns import (
    all_opened,
    are_base64_of,
    contents_hold,
    leaf_hashes,
    places_hold,
)
from policies.trail.walk.compact_range import CompactRange
from policies.trail.walk.continuity import VERSION, SourceChains, start_of
from policies.trail.walk.gaps import REDACT, Silence, erased_ranges, silence
from policies.trail.walk.known_lines import FEW, Columns, LineMatcher, Row, beside_hold, known_rows
from policies.trail.walk.range_result import (
    BEFORE,
    Citations,
    ClaimedPlace,
    NonEntryLine,
    RangeResult,
    StateBefore,
)

_BLOCK = 64 * 1024
"""The least number of bytes that are checked together: few enough to stay in the processor's
cache."""
_HOUR = len("2026-01-01T00")
_sha256 = hashlib.sha256

NOTABLE = ("purge", "incarnation")


class RangeWalk:
    """Verifies consecutive lines or rows. All entries must belong to the log of the first one."""

    def __init__(
        self,
        *,
        with_openings: bool = True,
        wanted: Collection[int] = (),
        before: StateBefore | None = None,
    ) -> None:
        """Begin a range. `with_openings` says that each line should have its openings beside its
        entry; `wanted` are the sizes at which the caller needs the tree. `before` is the state
        before the range, given where ranges are walked one after another; then every fault is found
        here, rather than by `JoinedWalk`."""
        self._before = before
        self._with_openings = with_openings
        self._wanted = frozenset(wanted)
        self._marks: list[tuple[int, tuple[bytes, ...]]] = []
        self._start: ClaimedPlace | None = None
        self._log, self._name = b"", ""
        self._tree = CompactRange(0 if before is None else before.seq)
        self._leaf = b""
        self._prev = b""
        self._ts = b""
        self._decisions = self._without = 0
        self._sources = SourceChains()
        self._ids: list[int] = []
        self._missing: list[int] = []
        self._erased: list[tuple[int, int]] = []
        self._notable: list[tuple[int, str, dict[str, Any]]] = []
        self._citations = Citations()
        self._others: list[NonEntryLine] = []
        self._silences: list[Silence] = []
        self._finding: Finding | None = None

    @property
    def end(self) -> int:
        """The number of the entry that comes next."""
        return self._tree.end

    def take(self, rows: Sequence[StoredRow]) -> bool:
        """Check rows until one fails: their entries, and the values stored beside these. Return
        True if none failed. The walk must have been given the state before them (`before`)."""
        if self._start is None and rows:
            # As with lines, the full check, since it says where the range begins.
            if not self._row(rows[0]):
                return False
            rows = rows[1:]
        together, parts = list[StoredRow](), list[Row]()
        for row, known in zip(rows, known_rows(rows), strict=True):
            if known is not None:
                together.append(row)
                parts.append(known)
                continue
            if together:
                if not self._together(together, parts):
                    return False
                together, parts = [], []
            if not self._row(row):
                return False
        return self._together(together, parts)

    def feed(self, chunk: bytes) -> bool:
        """Check lines until one fails; the last one must lack its line feed. Return True if none
        failed."""
        at = 0
        while at <= len(chunk):
            # The first entry gets the full check, alone: it says where the range begins.
            end = chunk.find(b"\n", at if self._start is None else at + _BLOCK)
            end = len(chunk) if end < 0 else end
            if not self._block(b"\n%b\n" % chunk[at:end]):
                return False
            at = end + 1
        return True

    def result(self) -> RangeResult:
        self._ids.sort()
        sources = self._sources.result()
        return RangeResult(
            self._start, self._tree.end, self._tree.hashes, self._leaf, self._ts,
            self._decisions, self._without, sources, array("q", self._ids), self._missing,
            self._erased, self._notable, self._citations.result(), self._others, self._marks,
            self._silences, self._finding,
        )  # fmt: skip

    # --------------------------------------------------------------------------- the fast path

    def _block(self, block: bytes) -> bool:
        """Check a block of whole lines, with a line feed before and after it. Return False if there
        is a finding."""
        matcher = LineMatcher(block)
        rows = None if self._start is None else matcher.rows(block)
        if rows is not None and self._known(rows):
            return True
        lines, rows = [], []
        for line in block[1:-1].split(b"\n"):
            row = None if self._start is None else matcher.rows(b"\n%b\n" % line)
            if row is not None:
                lines.append(line)
                rows += row
                continue
            if not (self._take_lines(lines, rows) and self._other(line)):
                return False
            lines, rows = [], []
        return self._take_lines(lines, rows)

    def _take_lines(self, lines: list[bytes], rows: list[Row]) -> bool:
        """Take in lines in our services' fixed byte form: together if they all pass, else one by
        one by the full check. Return False if there is a finding."""
        return not rows or self._known(rows) or all(map(self._other, lines))

    def _together(self, rows: list[StoredRow], parts: list[Row]) -> bool:
        """Take in rows in our services' fixed byte form: together if they all pass, else one by one
        by the full check. Return False if there is a finding."""
        if len(rows) >= FEW and self._known(parts, rows):
            return True
        return all(map(self._row, rows))

    def _known(self, rows: list[Row], stored: Sequence[StoredRow] = ()) -> bool:
        """Take in lines in our services' fixed byte form, or those of `stored` rows, if all checks
        pass. Otherwise return False and leave everything as it was, for the full check to say what
        is wrong."""
        columns = Columns(*zip(*rows, strict=True))
        first, count = self._tree.end, len(rows)
        opened = columns.user_id_salt if self._with_openings else ()
        if any(columns.user_id_salt) != bool(opened) or (
            self._wanted and not self._wanted.isdisjoint(range(first + 1, first + count + 1))
        ):
            return False
        leaves = leaf_hashes(columns.raw)
        if not (
            places_hold(columns, first, self._log, self._ts)
            and are_base64_of([self._leaf, *leaves[:-1]], columns.prev)
            and contents_hold(columns)
            and (not opened or all_opened(columns))
            and (not stored or beside_hold(columns, first, leaves, stored))
            and self._sources.take(columns, first, self._before)
        ):
            return False
        # From here on the entries count.
        self._note_silences(columns.ts)
        self._tree.extend(leaves)
        self._leaf, self._ts = leaves[-1], columns.ts[-1]
        self._prev = b2a_base64(self._leaf, newline=False)
        if not stored:
            self._ids += map(hash, columns.eid)
        self._citations.take_facts(columns.facts, first)
        self._decisions += count
        self._without += 0 if opened else count
        return True

    def _note_silences(self, times: Sequence[bytes]) -> None:
        """Note the silences before the next entries, which have these times. It may be called
        before an entry is checked: if the entry behind a silence fails, the walk ends there."""
        if self._start is None or self._ts[:_HOUR] == times[-1][:_HOUR]:
            return
        for seq, (begin, end) in enumerate(pairwise((self._ts, *times)), self._tree.end):
            if found := silence(seq, begin.decode(), end.decode()):
                self._silences.append(found)

    # --------------------------------------------------------------------------- the full check

    def _other(self, line: bytes) -> bool:
        """Check a line of any form by the full check. Return False if there is a finding."""
        parts = plain_entry(line, self._with_openings)
        if parts is None:
            end = BEFORE if self._start is None else self._tree.end
            self._others.append(NonEntryLine(line, end, tuple(self._tree.hashes)))
            return True
        return self._checked(*parts)

    def _row(self, row: StoredRow) -> bool:
        return self._checked(row.entry, row.openings, row)

    def _checked(self, raw: bytes, openings: bytes | None, row: StoredRow | None = None) -> bool:
        entry = None
        try:
            entry = load_entry(raw)
            self._entry(raw, entry, openings, row)
        # The bytes may be anything: what decoding or a look-up raises on them is a finding too.
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            found, reason = f"not an entry: {error!r:.200}", Reason.NOT_AN_ENTRY
            if isinstance(error, EntryFinding):
                found, reason = str(error), error.reason
            eid = entry.get("eid") if isinstance(entry, dict) else None
            eid = eid if isinstance(eid, str) else None
            seq = self._place() if row is None else row.seq
            found = found if seq is None else f"seq {seq}: {found}"
            self._finding = Finding(seq, reason, found, eid)
            return False
        return True

    def _place(self) -> int | None:
        """Return the number of an entry that fails; None if the range does not know its place in
        the log."""
        known = self._start is not None or self._before is not None
        return self._tree.end if known else None

    def _entry(self, raw: bytes, entry: Any, opened: bytes | None, row: StoredRow | None) -> None:
        sourced = check_entry(raw, entry)
        seq, prev, ts = entry["seq"], entry["prev"].encode(), entry["ts"].encode()
        start = self._start
        # One condition covers the usual case; `start_of` finds out which part of it failed.
        if (
            start is None
            or type(seq) is not int
            or seq != self._tree.end
            or (row is not None and row.seq != seq)
            or prev != self._prev
            or entry["log"] != self._name
            or ts < self._ts
            or not raw.endswith(VERSION)
        ):
            start = start_of(
                raw, entry, None if row is None else row.seq, self._state_before_next()
            )
        leaf = _sha256(b"\0" + raw).digest()
        if row is not None:
            check_beside(row, entry, leaf)
        if sourced:
            self._sources.follow(entry, seq, self._before)
        self._note_silences((ts,))
        if self._start is None:
            self._start, self._name = start, entry["log"]
            self._tree, self._log = CompactRange(seq), start.log
        # From here on the claims stand, even if the openings fail: what the part before says about
        # the place and the source comes first.
        missing = None if opened is None else check_openings(entry, opened)
        erased = erased_ranges(entry) if entry["kind"] == REDACT else []
        if missing is not None:
            self._missing.append(seq)
        self._erased += erased
        if entry["kind"] in NOTABLE:
            self._notable.append((seq, entry["kind"], entry["pub"]))
        self._citations.take(entry, seq)
        self._leaf = leaf
        self._tree.append(leaf)
        self._prev, self._ts = b2a_base64(leaf, newline=False), ts
        if row is None:
            self._ids.append(hash(entry["eid"].encode()))
        self._decisions += entry["kind"] == "decision"
        self._without += opened is None and bool(entry["cm"])
        if self._tree.end in self._wanted:
            self._marks.append((self._tree.end, tuple(self._tree.hashes)))

    def _state_before_next(self) -> StateBefore | None:
        """Return the state before the next entry; None if it is not known."""
        if self._start is None:
            return self._before
        return StateBefore(self._tree.end, self._log, self._prev, self._ts, {}, trusting=False)
