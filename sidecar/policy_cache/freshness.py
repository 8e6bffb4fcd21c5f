"""Measures the age of the policy set, and says whether the set is too old."""

from math import inf

from policies.ground.clock import Clock

SKEW_SECONDS = 5.0
"""The most seconds that a saved time may lie in the future. If it lies further ahead, the age is
unknown."""


class Freshness:
    """The age of a policy set, compared with a limit in seconds. A set that was never confirmed is
    infinitely old."""

    def __init__(self, limit: float, clock: Clock) -> None:
        self.limit = limit
        self._monotonic = clock.monotonic
        self._now = clock.now
        self._confirmed = -inf
        self.expired = ""
        """The reason why the set may not be used, however recent it is; empty if it may be used."""

    def age(self) -> float:
        """Return the seconds since the set was last confirmed; infinite if it never was."""
        return self._monotonic() - self._confirmed

    def stale(self, now: float) -> bool:
        """Return whether the set is too old to decide by at `now` (monotonic seconds)."""
        return now - self._confirmed > self.limit

    def reason(self, now: float) -> str:
        if self._confirmed == -inf:
            if self.expired:
                return f"the policy set can't be used: {self.expired}"
            return f"no policy set has been confirmed; the limit is {self.limit:g} s"
        age = now - self._confirmed
        return f"the policy set was last confirmed {age:.1f} s ago; the limit is {self.limit:g} s"

    def confirm(self, sent: float) -> None:
        """Note that the set is current as of `sent` (monotonic seconds), when the poll was sent
        that confirmed it or brought it up to date."""
        # The age counts from the question, not from its answer: what the control API said was true
        # at some moment in between. Two sources may confirm out of order, hence the maximum.
        self._confirmed, self.expired = max(self._confirmed, sent), ""

    def expire(self, why: str) -> None:
        """Treat the set as stale, for the reason `why`, until it is confirmed again."""
        self._confirmed, self.expired = -inf, why

    def restore(self, as_of: int) -> None:
        """Restore the age of the set on disk, which a previous process confirmed at `as_of` (wall
        clock, microseconds)."""
        # The monotonic clock of that process means nothing in this one. A time in the future means
        # that the wall clock was set back: then the set counts as stale until it is confirmed.
        age = (self._now() - as_of) / 1e6
        if age >= -SKEW_SECONDS:
            self._confirmed = self._monotonic() - max(age, 0.0)
