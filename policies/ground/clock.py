"""The type of a clock, and the times that people type.

Reads no time itself: each service builds the real clock in its `__main__`. For every command that
takes a time:

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
    """The two clocks of a process. `now` returns wall-clock time in microseconds since 1970 UTC,
    which may step. `monotonic` returns seconds, and never steps: measure durations by it."""

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
    """Parse a time in one of the forms at the top of this module, and return it in microseconds
    since 1970 UTC. A form such as `30m` counts back from `now`, in the same unit. Raises
    `UnreadableTime`."""
    return (_moment(text, now) - _EPOCH) // _MICROSECOND


def read_time_text(text: str, now: int) -> str:
    """Parse a time as `read_time` does, and return it in the API's form,
    `YYYY-MM-DDTHH:MM:SS.ffffffZ`. Raises `UnreadableTime`."""
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
