"""Finds the fault of an entry that does not continue the one before: in the log, or among the
records of its source (an enforcement point's spool). The only place for these rules: walks over
files and over rows both use them.

Also keeps, for each source in a range, what its first record claims about the records before it,
and the end of its chain so far. Takes in records one by one, or many that were recognised by their
bytes together.
"""

import re
from binascii import b2a_base64
from typing import Any

import orjson

from policies.ground.canonical import NotCanonical, encode, unb64
from policies.trail.core import record_hash
from policies.trail.entry import EntryFinding
from policies.trail.findings import Reason
from policies.trail.proofs.nodes import HASH
from policies.trail.walk.columns import are_base64_of, core_hashes
from policies.trail.walk.known_lines import Columns
from policies.trail.walk.range_result import (
    ChainEnd,
    ClaimedPlace,
    Source,
    SourceClaim,
    StateBefore,
)

VERSION = b',"v":1}'
"""The last bytes of every entry, its member `v`. Compared as bytes, since `True == 1` in Python."""


def start_of(
    raw: bytes, entry: dict[str, Any], row: int | None, before: StateBefore | None
) -> ClaimedPlace:
    """Return the place in the log that an entry states for itself. `raw` are its bytes, and `entry`
    the decoded entry. `row` is the number of its row in the database, None for a line of a file.
    Raises `EntryFinding` if the entry does not follow `before`, which is None if that is not known;
    for a row it must be known."""
    seq = entry["seq"]
    if row is not None:
        assert before is not None
        if fault := _row_fault(seq, row, before.seq):
            raise fault
    if type(seq) is not int or seq < 0:
        raise wrong_seq(seq)
    # An entry in another version of the format counts as an entry of another log, whatever log it
    # names: `b""` equals no log's name.
    log = b',"log":' + encode(entry["log"]) if raw.endswith(VERSION) else b""
    said = ClaimedPlace(seq, entry["prev"].encode(), entry["ts"].encode(), log, entry["eid"])
    if before is not None and (fault := place_fault(said, before)):
        raise fault
    return said


def wrong_seq(said: object) -> EntryFinding:
    return EntryFinding(Reason.WRONG_SEQ, f"the entry says seq {said!r:.40}")


def _row_fault(said: object, seq: int, due: int) -> EntryFinding | None:
    """Return what is wrong with a row's number; None if nothing is. `seq` is the number of the row,
    `said` is the number in its entry, and `due` is the number that should come next."""
    if seq > due:
        missing = f"{seq - due} entries before this one are missing"
        return EntryFinding(Reason.ENTRIES_MISSING, missing)
    if seq < due:
        return EntryFinding(Reason.ENTRY_MISPLACED, f"is at the position of entry {due}")
    return None if type(said) is int and said == seq else wrong_seq(said)


def place_fault(said: ClaimedPlace, before: StateBefore) -> EntryFinding | None:
    """Return why an entry that states the place `said` does not follow `before`; None if it
    does."""
    if said.seq > before.seq:
        count = said.seq - before.seq
        missing = f"{count} entries before entry {said.seq} are missing"
        if count == 1:
            missing = f"1 entry before entry {said.seq} is missing"
        return EntryFinding(Reason.ENTRIES_MISSING, missing)
    if said.seq < before.seq:
        return wrong_seq(said.seq)
    if said.log != before.log:
        other = "belongs to another log, or to another version of the format"
        return EntryFinding(Reason.WRONG_LOG, other)
    # In a part, the hash before its first entry may be unknown; it must be one all the same.
    if said.prev != before.prev and (before.prev is not None or not _is_hash(said.prev)):
        return EntryFinding(Reason.CHAIN_BROKEN, "`prev` is not the hash of the entry before")
    if said.ts < before.ts:
        return EntryFinding(Reason.TIME_REVERSED, "its time is before that of the entry before")
    return None


def source_fault(
    source: str, n: int, prev: bytes, end: ChainEnd | None, *, trusting: bool
) -> EntryFinding | None:
    """Return why record number `n` with the predecessor hash `prev` does not continue its source,
    whose chain ended at `end`; None if it does. `end` is None if the walk has not met the source
    yet. If `trusting` is true, such a source may have had records before the walk."""
    if end is None:
        # After a purge, or in a part, the source's earlier records may be gone, so take this one's
        # word for them. In a walk from the first entry, each source begins with number 0.
        end = (n - 1, prev) if trusting and n > 0 else (-1, b"")
    if n - 1 != end[0]:
        return EntryFinding(Reason.SOURCE_GAP, f"source `{source}` counts {n} after {end[0]}")
    if prev != end[1]:
        return EntryFinding(
            Reason.SOURCE_CHAIN_BROKEN,
            f"`src.prev` is not the hash of record {end[0]} of source `{source}`",
        )
    return None


def _is_hash(text: bytes) -> bool:
    try:
        return len(unb64(text.decode())) == HASH
    except NotCanonical:
        return False


_IS_HASH = re.compile(rb"(?:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048])?")


class SourceChains:
    """The hash chains of the sources (enforcement points' spools) within a range. A source is
    identified by the JSON text of `id` and `inst` in `src`."""

    def __init__(self) -> None:
        # The hash of a source's last record is compared as it is; base64 is for the result.
        self._claims: dict[bytes, SourceClaim] = {}
        self._ends: dict[bytes, tuple[int, bytes]] = {}
        self._texts: dict[tuple[str, str], bytes] = {}

    def follow(self, entry: dict[str, Any], seq: int, before: StateBefore | None) -> None:
        """Take in the record of entry number `seq` if it continues its source's chain. Raises
        `EntryFinding` if it doesn't. `before` is the state before the range, None if it is not
        known."""
        src = entry["src"]
        names: tuple[str, str] = (src["id"], src["inst"])
        source = self._texts.get(names)
        if source is None:
            source = self._texts[names] = encode({"id": names[0], "inst": names[1]})[1:-1]
        n, prev, last = src["n"], src["prev"].encode(), self._ends.get(source)
        end = None if last is None else (last[0], b2a_base64(last[1], newline=False))
        trusting = before is not None and before.trusting
        if last is None and before is not None:
            end = before.sources.get((names[0].encode(), names[1].encode()))
        known = last is not None or before is not None
        if known and (fault := source_fault(names[0], n, prev, end, trusting=trusting)):
            raise fault
        if last is None:
            self._claims[source] = SourceClaim(seq, entry["eid"].encode(), n, prev, n, b"")
        self._ends[source] = n, record_hash(entry)

    def take(self, columns: Columns, first: int, before: StateBefore | None = None) -> bool:
        """Take in the records of many lines that were recognised by their bytes, numbered from
        `first` on. Return True if each continues its source's chain; otherwise return False and
        take in none. `before` is the state before the range, None if it is not known."""
        if not any(columns.src):
            return True
        claims: dict[bytes, SourceClaim] = {}
        ends: dict[bytes, tuple[int, bytes]] = {}
        expected: list[bytes] = []
        given: list[bytes] = []
        for place, (source, n, prev, hashed) in enumerate(
            zip(columns.source, columns.n, columns.src_prev, core_hashes(columns), strict=True)
        ):
            if not source:
                continue
            number = int(n)
            end = ends.get(source) or self._ends.get(source)
            if end is None:
                claim = b"%b=" % prev if prev else b""
                if _IS_HASH.fullmatch(prev) is None or not _continues(
                    source, number, claim, before
                ):
                    return False
                eid = columns.eid[place]
                claims[source] = SourceClaim(first + place, eid, number, claim, number, b"")
            elif number != end[0] + 1:
                return False
            else:
                expected.append(end[1])
                given.append(prev)
            ends[source] = number, hashed
        if expected and not are_base64_of(expected, given):
            return False
        self._claims |= claims
        self._ends |= ends
        return True

    def result(self) -> dict[Source, SourceClaim]:
        """Return a claim for each source, by its `id` and `inst`, in the order in which the range
        met them."""
        found: dict[Source, SourceClaim] = {}
        for text, claim in self._claims.items():
            n, hashed = self._ends[text]
            names = orjson.loads(b"{%b}" % text)
            found[names["id"].encode(), names["inst"].encode()] = claim._replace(
                last_n=n, last_hash=b2a_base64(hashed, newline=False)
            )
        return found


def _continues(source: bytes, n: int, prev: bytes, before: StateBefore | None) -> bool:
    """Return whether the first record of a source in a range continues the source's chain in
    `before`; True if `before` is None, since then it is not known."""
    if before is None:
        return True
    names = orjson.loads(b"{%b}" % source)
    end = before.sources.get((names["id"].encode(), names["inst"].encode()))
    return source_fault(names["id"], n, prev, end, trusting=before.trusting) is None
