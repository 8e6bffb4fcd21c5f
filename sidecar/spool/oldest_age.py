"""How long the oldest of many things has waited, without a time for each. Knows no records.

Positions count everything that ever came; a mark says when what lies from a position on came.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

MARK_SECONDS = 0.25
MARKS = 512


class OldestAge:
    """`grown_to` when things came, `shrunk_by` when the oldest left. At most `MARKS` marks: where
    there would be more, every second is dropped and the next ones stand twice as far apart. An age
    errs upward, by what lies between two marks."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._marks: deque[tuple[int, float]] = deque()
        self._apart = MARK_SECONDS
        self._left = 0
        self._reached = 0

    def grown_to(self, depth: int) -> None:
        reached = self._left + depth
        if reached == self._reached:
            return
        now = self._monotonic()
        if not self._marks or now - self._marks[-1][1] >= self._apart:
            self._marks.append((self._reached, now))
            if len(self._marks) > MARKS:
                self._marks = deque(islice(self._marks, 0, None, 2))
                self._apart *= 2
        self._reached = reached

    def shrunk_by(self, count: int) -> None:
        self._left += count
        if self._left == self._reached:
            self._marks.clear()
            self._apart = MARK_SECONDS

    def seconds(self) -> float:
        """Age of the oldest; 0 where there is nothing."""
        if not self._marks:
            return 0.0
        while len(self._marks) > 1 and self._marks[1][0] <= self._left:
            self._marks.popleft()
        return self._monotonic() - self._marks[0][1]
