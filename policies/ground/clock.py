"""The type of a clock. Reads no time itself: each service builds the real one in its `__main__`."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` is wall-clock time in microseconds since 1970 UTC, and may step. `monotonic` is in
    seconds and never steps; durations are measured by it."""

    now: Callable[[], int]
    monotonic: Callable[[], float]
