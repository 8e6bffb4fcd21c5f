"""Detects a stream that someone else has made unusable: its ids lie so far in the future that
nothing can be added, or its key holds another type. The caller deletes the key, and the stream
starts anew."""

from control_api.publishing.redis_client import RedisFault, is_error

AHEAD_MS = 2 * 86_400_000
"""No clock is this far ahead: someone wrote such an entry to use up the stream's ids."""

Id = tuple[int, int]


def entry_id(raw: object) -> Id:
    """An entry's id: its time in milliseconds, and its number within that millisecond. Raises
    `RedisFault` if it is malformed."""
    if isinstance(raw, bytes):
        high, dash, low = raw.partition(b"-")
        # Two 64-bit numbers and a dash fit in 48 bytes. A longer id would be slow to convert.
        if dash and high.isdigit() and low.isdigit() and len(raw) < 48:
            return int(high), int(low)
    raise RedisFault("it answered with a stream entry that has no valid id")


def far_ahead(entry: Id, now: int) -> bool:
    """Whether an entry's id is implausibly late at `now` (microseconds)."""
    return entry[0] > now // 1000 + AHEAD_MS


def unusable(error: object) -> bool:
    """Whether a command failed because the key is not a stream, or the stream's ids are used up."""
    if not isinstance(error, BaseException):
        return False
    return is_error(error, "WRONGTYPE") or is_error(error, "The stream has exhausted")
