"""Computes the pauses between attempts that fail: each is twice as long as the one before, up to a
limit."""

import random


class Backoff:
    """The growing pauses between failed attempts, from `first` to `longest` seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._failed_in_a_row = 0

    def next_pause(self) -> float:
        """Return the seconds to wait after another failed attempt."""
        # The exponent is bounded: an outage of days must not compute a huge power.
        ceiling = min(self._longest, self._first * (1 << min(self._failed_in_a_row, 10)))
        self._failed_in_a_row += 1
        return jittered(ceiling)

    def reset(self) -> None:
        """Begin with the first pause again. Call this after an attempt that succeeded."""
        self._failed_in_a_row = 0


def jittered(seconds: float) -> float:
    """Return a random time between half of `seconds` and all of it: a fleet that lost its control
    API or its Redis must not come back all at once."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing
