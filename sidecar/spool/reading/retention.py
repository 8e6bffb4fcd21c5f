"""Remembers which acknowledged segments stay on disk and since when, and picks the one to delete
next. Touches no file.

A control API restored to an older copy of its database holds less than it signed for. The sidecar
can then send again what was lost.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from sidecar.spool.instance import Instance

RETAIN_SECONDS = 900.0
"""The seconds for which a fully acknowledged segment stays: not for long, since it may hold
personal data."""


class _RetainedSegment(NamedTuple):
    since: float
    instance: Instance
    size: int


class RetainedInstances:
    """Retained segments in the order in which they were acknowledged. Of each instance these are
    the first `Instance.retained` segments. At most `limit` bytes stay."""

    def __init__(self, monotonic: Callable[[], float], limit: int) -> None:
        self._monotonic = monotonic
        self._limit = limit
        self._bytes = 0
        self._retained: deque[_RetainedSegment] = deque()

    def retain(self, instance: Instance) -> None:
        """Retain the segments of the instance that have become fully acknowledged."""
        before = instance.retained
        instance.count_retained()
        now = self._monotonic()
        for segment in islice(instance.segments, before, instance.retained):
            self._retained.append(_RetainedSegment(now, instance, segment.size))
            self._bytes += segment.size

    def retain_again(self, instance: Instance) -> None:
        """Start over with an instance that now has fewer acknowledged records than before."""
        # Its segments now stay longer: the control API is about to take them again.
        self.drop(instance)
        instance.retained = 0
        self.retain(instance)

    def drop(self, instance: Instance) -> None:
        """Stop retaining the instance's segments."""
        self._bytes -= sum(each.size for each in self._retained if each.instance is instance)
        self._retained = deque(each for each in self._retained if each.instance is not instance)

    def pop_expired(self, *, everything: bool) -> Instance | None:
        """Stop retaining the oldest segment if it is due. Returns the instance that it is the first
        segment of, or None if no segment is due."""
        if not self._retained:
            return None
        # In order of acknowledgement, so the first is the oldest over all instances.
        expired = self._monotonic() - self._retained[0].since > RETAIN_SECONDS
        if not (everything or expired or self._bytes > self._limit):
            return None
        oldest = self._retained.popleft()
        self._bytes -= oldest.size
        oldest.instance.retained -= 1
        return oldest.instance
