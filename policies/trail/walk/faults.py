"""Says what is wrong with an entry that does not continue the one before, in the log or among the
records of its source. The only place for these rules: walks over files and over rows ask here."""

from typing import Any

from policies.ground.canonical import NotCanonical, encode, unb64
from policies.trail.findings import Reason
from policies.trail.proofs.subtree import HASH
from policies.trail.stored_entry import EntryFinding
from policies.trail.walk.range_result import Before, ChainEnd, Start

VERSION = b',"v":1}'
"""The last member of every entry. Compared as bytes, since `True == 1`."""


def start_of(raw: bytes, entry: dict[str, Any], row: int | None, before: Before | None) -> Start:
    """What an entry, the decoded `raw`, says about its place. `row` is the number of its row, None
    for a line. Raises `EntryFinding` unless it follows what is `before` it, as far as that is
    known: it is for a row."""
    seq = entry["seq"]
    if row is not None:
        assert before is not None
        if fault := _row_fault(seq, row, before.seq):
            raise fault
    if type(seq) is not int or seq < 0:
        raise wrong_seq(seq)
    # Another version is another log's, whatever it says.
    log = b',"log":' + encode(entry["log"]) if raw.endswith(VERSION) else b""
    said = Start(seq, entry["prev"].encode(), entry["ts"].encode(), log, entry["eid"])
    if before is not None and (fault := place_fault(said, before)):
        raise fault
    return said


def wrong_seq(said: object) -> EntryFinding:
    return EntryFinding(Reason.WRONG_SEQ, f"the entry says seq {said!r:.40}")


def _row_fault(said: object, seq: int, due: int) -> EntryFinding | None:
    """Why the row number `seq`, whose entry says the number `said`, is not row number `due`."""
    if seq > due:
        missing = f"{seq - due} entries before this one are missing"
        return EntryFinding(Reason.ENTRIES_MISSING, missing)
    if seq < due:
        return EntryFinding(Reason.ENTRY_MISPLACED, f"is at the position of entry {due}")
    return None if type(said) is int and said == seq else wrong_seq(said)


def place_fault(said: Start, before: Before) -> EntryFinding | None:
    """Why an entry does not follow what is `before` it."""
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
    """Why a record does not continue its source, whose chain ended at `end`; None if the walk has
    not met it yet."""
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
