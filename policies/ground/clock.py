"""The type of a clock. Reads no time itself: each service builds the real one in its `__main__`.

Reads times as people type them, for every command that takes one.

    30s, 30m, 1h, 7d, 4w        so long ago
    2026-11-01                  midnight of that day, UTC
    2026-11-01T09:00[:30]Z      RFC 3339; the seconds may be left out

Needs the standard library alone: the operator's commands work without any other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` is wall-clock time in microseconds since 1970 UTC, and may step. `monotonic` is in
    seconds and never steps; durations are measured by it."""

    now: Callable[[], int]
    monotonic: Callable[[], float]


ACCEPTED = (
    "how long ago (`30s`, `30m`, `1h`, `7d`, `4w`), a date (`2026-11-01`) or an RFC 3339 time "
    "(`2026-11-01T09:00:00Z`)"
)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# `re.A`: otherwise `\d` matches digits of other scripts too.
_AGO = re.compile(r"(\d{1,6})([smhdw])", re.A)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d))?", re.A
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class UnreadableTime(ValueError):
    """a text that is no time; the message says what is accepted"""


def read_time(text: str, now: int) -> int:
    """Read the time that `text` names, in microseconds since 1970 UTC like `now`. Raises
    `UnreadableTime`."""
    return (_moment(text, now) - _EPOCH) // _MICROSECOND


def read_time_text(text: str, now: int) -> str:
    """Read a time, and return it in the API's form, `YYYY-MM-DDTHH:MM:SS.ffffffZ`. Raises
    `UnreadableTime`."""
    return _moment(text, now).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str, now: int) -> datetime:
    try:
        if ago := _AGO.fullmatch(text):
            back = timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            return _within(_EPOCH + timedelta(microseconds=now) - back)
        if _TIME.fullmatch(text):
            at = datetime.fromisoformat(text.upper())
            return _within((at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC))
    except (ValueError, OverflowError):
        pass  # no such day or hour, or one before the calendar begins
    raise UnreadableTime(f"`{text:.40}` is not a time; expected {ACCEPTED}")


def _within(moment: datetime) -> datetime:
    # `strftime` writes an earlier year with fewer digits, and no log is that old.
    if moment < _EPOCH:
        raise ValueError
    return moment
