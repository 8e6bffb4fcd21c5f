"""What a stream that others may write to can come to: ids of a far future, so that nothing more can
be added, or a key that is no stream. Either was made so by someone else, and is begun anew."""

from control_api.publishing.redis_client import RedisFault, refused

AHEAD_MS = 2 * 86_400_000
"""No clock is so far ahead: an entry of then was written to use up the stream's ids."""

Id = tuple[int, int]


def entry_id(raw: object) -> Id:
    """Milliseconds and a number among those of the same; `RedisFault` where it is none."""
    if isinstance(raw, bytes):
        high, dash, low = raw.partition(b"-")
        if dash and high.isdigit() and low.isdigit() and len(raw) < 48:
            return int(high), int(low)
    raise RedisFault("it answered with an entry without an id")


def far_ahead(entry: Id, now: int) -> bool:
    """Of an entry, at `now` in microseconds."""
    return entry[0] > now // 1000 + AHEAD_MS


def spoiled(error: object) -> bool:
    """Whether a command was refused for what the key has become."""
    if not isinstance(error, BaseException):
        return False
    return refused(error, "WRONGTYPE") or refused(error, "The stream has exhausted")
