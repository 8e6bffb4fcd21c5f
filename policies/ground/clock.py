"""What a clock is. Knows no time itself: each service builds the real one in its `__main__`."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` is wall-clock microseconds since 1970 UTC, and may step. `monotonic` is seconds, never
    steps, and is what durations are measured by."""

    now: Callable[[], int]
    monotonic: Callable[[], float]
