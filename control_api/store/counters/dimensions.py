"""The dimensions by which decisions are counted, the length of their time buckets, and how long
each bucket is kept. Counts nothing."""

from enum import IntEnum

MISMATCH = "session_agent_mismatch"
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
SEPARATOR = "\x1f"
"""Separates the two parts of a value. It is a control character, which no identifier contains."""


class Dimension(IntEnum):
    """INVARIANT: the table stores these numbers. Only append: never renumber or remove one."""

    source_type = 0
    agent_role = 1
    source_id = 2
    agent = 3
    agent_source = 4
    session = 5
    second = 6
    minute = 7
    mismatch_second = 8
    mismatch_minute = 9
    doubtful_second = 10
    doubtful_minute = 11


BUCKETS: dict[Dimension, int] = {
    Dimension.agent: HOUR,
    Dimension.agent_source: DAY,
    Dimension.second: SECOND,
    Dimension.minute: MINUTE,
    Dimension.mismatch_second: SECOND,
    Dimension.mismatch_minute: MINUTE,
    Dimension.doubtful_second: SECOND,
    Dimension.doubtful_minute: MINUTE,
}
"""A bucket's length in microseconds. The other dimensions have one bucket for all time."""

# Longer than anything that is queried: agents' activity and alert rules look back up to 7 days.
# Rules sum windows of up to an hour by the second.
KEPT: dict[Dimension, int] = {
    Dimension.agent: 8 * DAY,
    Dimension.agent_source: 9 * DAY,
    Dimension.second: 2 * HOUR,
    Dimension.minute: 8 * DAY,
    Dimension.mismatch_second: 2 * HOUR,
    Dimension.mismatch_minute: 8 * DAY,
    Dimension.doubtful_second: 2 * HOUR,
    Dimension.doubtful_minute: 8 * DAY,
}
"""How long a bucket can be queried, in microseconds; older ones are dropped."""
