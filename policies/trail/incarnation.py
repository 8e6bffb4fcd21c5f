"""Incarnations of a log, and the origins of their checkpoints.

A log that is behind a checkpoint of its own must not be signed under the same origin again: a
signed size can't be taken back. If an operator accepts the loss, the log goes on as its next
incarnation, whose checkpoints have an origin of their own. Doesn't know when that is needed.
"""

from policies.ground.canonical import encode
from policies.trail.record import Record, make_record

_MARK = "#"


def origin_of(log: str, number: int) -> str:
    """Return the origin of the checkpoints of a log's incarnation `number`, 0 for the first."""
    return f"{log}{_MARK}{number}" if number else log


def split_origin(origin: str) -> tuple[str, int]:
    """Return the log and the number of the incarnation that an origin names. An origin of another
    form is the first incarnation of a log with that name."""
    log, mark, digits = origin.rpartition(_MARK)
    # A leading zero would be a second spelling of the same origin.
    if mark and digits.isascii() and digits.isdigit() and digits[0] != "0" and len(digits) < 10:
        return log, int(digits)
    return origin, 0


def is_origin_of(origin: str, log: str) -> bool:
    """Return whether checkpoints with this origin are of the log, in any of its incarnations."""
    return split_origin(origin)[0] == log


def accepted_incarnation_record(
    log: str, number: int, cited: str | None, reason: str, *, record_id: str
) -> Record:
    """Return the `incarnation` entry of an operator's decision to go on with a log that is behind
    its checkpoints. `cited` is the last note of the origin before; `reason` the operator's
    words."""
    pub = {
        "cited": cited,
        "number": number,
        "origin": origin_of(log, number),
        "reason": reason,
    }
    return make_record("incarnation", record_id, encode(pub))
