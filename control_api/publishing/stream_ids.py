"""Detects streams that someone else has made unusable: one whose ids lie so far in the future that
nothing can be added, or a key that is not a stream. The caller deletes such a key, and it starts
anew."""

from control_api.publishing.redis_client import RedisFault, is_error

AHEAD_MS = 2 * 86_400_000
"""No clock is this far ahead: an entry from then was written to use up the stream's ids."""

Id = tuple[int, int]


def entry_id(raw: object) -> Id:
    """Milliseconds, and the sequence number within them. Raises `RedisFault` if malformed."""
    if isinstance(raw, bytes):
        high, dash, low = raw.partition(b"-")
        if dash and high.isdigit() and low.isdigit() and len(raw) < 48:
            return int(high), int(low)
    raise RedisFault("it answered with a stream entry that has no valid id")


def far_ahead(entry: Id, now: int) -> bool:
    """Whether an entry's id is implausibly late at `now` (microseconds)."""
    return entry[0] > now // 1000 + AHEAD_MS


def unusable(error: object) -> bool:
    """Whether a command failed because of what the key has become."""
    if not isinstance(error, BaseException):
        return False
    return is_error(error, "WRONGTYPE") or is_error(error, "The stream has exhausted")
