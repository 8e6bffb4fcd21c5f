"""Finds the times in which a log recorded nothing, not even a heartbeat.

A log writes a heartbeat when it had no entry for an hour. So a longer silence says that its service
was stopped, or that it was kept from writing: decisions of that time, if there were any, are in no
log. Which of them it was, no log can tell.
"""

from collections.abc import Iterable
from typing import NamedTuple

from policies.ground.canonical import micros

SECOND = 1_000_000
LONGEST = 3660 * SECOND
"""An hour, and a minute in which a service that has other work may write its heartbeat."""
MOST = 20
"""Silences that are kept, the longest ones: a bound on memory."""
_HOUR = len("2026-01-01T00")


class Silence(NamedTuple):
    """A time without entries. `seq` is the entry that ended it; `begin` and `end` are the recording
    times of the entry before and of that one."""

    seq: int
    begin: str
    end: str

    @property
    def duration(self) -> int:
        """In microseconds."""
        return micros(self.end) - micros(self.begin)


def silence(seq: int, begin: str, end: str) -> Silence | None:
    """The silence between two entries; None if they are no further apart than they may be. Both
    times must have been verified."""
    # Called where an hour begins, and for entries that get the full check.
    if begin[:_HOUR] == end[:_HOUR]:
        return None
    found = Silence(seq, begin, end)
    return found if found.duration > LONGEST else None


class Silences:
    """All silences of a walk: how many, and the longest of them."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[Silence] = []

    def between(self, seq: int, begin: str, end: str) -> None:
        """Note the silence before entry `seq`, if it is one. `begin` is empty for a first entry."""
        if begin[:_HOUR] != end[:_HOUR] and begin and (found := silence(seq, begin, end)):
            self.add([found])

    def add(self, found: Iterable[Silence]) -> None:
        for each in found:
            self.count += 1
            self._kept.append(each)
            if len(self._kept) > MOST:
                # Of two that are equally long, the first stays.
                self._kept.remove(min(reversed(self._kept), key=_duration))

    def longest(self) -> list[Silence]:
        """The longest ones, at most `MOST`, in order of time."""
        return list(self._kept)


def _duration(each: Silence) -> int:
    return each.duration
