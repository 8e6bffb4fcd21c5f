"""The `redact` entry: which openings were erased, why, and by whom.

It holds numbers of entries only. Nothing in it may tell whose values they were: the log keeps it
forever. `walk/erasures.py` reads it again when a log is verified.
"""

from collections.abc import Iterable

from policies.ground.canonical import encode
from policies.trail.record import Record, make_record
from policies.trail.walk.erasures import KIND

MAX_SEQS = 1024
"""The most entries that one `redact` entry names: even without two in a row, it has 64 KiB."""


def redact_record(by: str, reason: str, seqs: Iterable[int], *, record_id: str) -> Record:
    """The record of an erasure of the openings of these entries, at most `MAX_SEQS`, in order.
    `by` is the id of the key that asked for it."""
    return make_record(
        KIND, record_id, encode({"by": by, "events": ranges_of(seqs), "reason": reason})
    )


def ranges_of(seqs: Iterable[int]) -> list[list[int]]:
    """The ranges `[first, last]` of these ascending numbers, both ends included."""
    ranges: list[list[int]] = []
    for seq in seqs:
        # A range covers only what was erased: with one entry more, it would excuse the silent loss
        # of that entry's opening.
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ranges
