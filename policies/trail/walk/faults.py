"""Says what is wrong with an entry that does not continue the one before, in the log or among the
records of its source."""

from typing import Any

from policies.trail.findings import Reason
from policies.trail.stored_entry import EntryFinding


def check_source(src: dict[str, Any], last_n: int, last_hash: bytes) -> None:
    """Compare a record with the one before it of its source. Raises `EntryFinding`."""
    if src["n"] - 1 != last_n:
        wrong = f"source `{src['id']}` counts {src['n']} after {last_n}"
        raise EntryFinding(Reason.SOURCE_GAP, wrong)
    if src["prev"].encode() != last_hash:
        raise EntryFinding(
            Reason.SOURCE_CHAIN_BROKEN,
            f"`src.prev` is not the hash of record {last_n} of source `{src['id']}`",
        )


def position_fault(
    entry: dict[str, Any], seq: int, raw: bytes, *, same_log: bool = True, prev: bytes | None = None
) -> EntryFinding:
    """What is wrong with an entry in a file that should be number `seq`."""
    said = entry["seq"]
    if type(said) is int and said > seq and prev is not None:
        missing = f"{said - seq} entries before entry {said} are missing"
        return EntryFinding(Reason.ENTRIES_MISSING, missing)
    if type(said) is not int or said < 0 or (said != seq and prev is not None):
        return EntryFinding(Reason.WRONG_SEQ, f"the entry says seq {said!r:.40}")
    if not same_log or not raw.endswith(b',"v":1}'):
        other = "belongs to another log, or to another version of the format"
        return EntryFinding(Reason.WRONG_LOG, other)
    if prev is not None and entry["prev"].encode() != prev:
        return EntryFinding(Reason.CHAIN_BROKEN, "`prev` is not the hash of the entry before")
    return EntryFinding(Reason.TIME_REVERSED, "its time is before that of the entry before")
