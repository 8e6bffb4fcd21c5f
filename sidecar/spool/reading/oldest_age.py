"""The age of the oldest item in a queue, without storing a time for each item.

Positions count every item that ever arrived. A mark records when the items from one position on
arrived. Knows nothing of records.
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

MARK_SECONDS = 0.25
"""The spacing of the first marks."""

MARKS = 512
"""The most marks that are kept; one more doubles the spacing."""


class OldestAge:
    """Call `grow_to` when items arrive and `shrink_by` when the oldest leave. The age errs upward,
    by at most the spacing of the marks."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._marks: deque[tuple[int, float]] = deque()
        self._spacing = MARK_SECONDS
        self._left = 0
        self._reached = 0

    def restore(self, depth: int, ages: Iterable[tuple[int, float]]) -> None:
        """Begin with `depth` items that are there already. `ages` has, in order, positions and the
        age in seconds of the items from each on."""
        now = self._monotonic()
        self._marks.extend((position, now - age) for position, age in ages)
        # Without any age, they count as arriving when `grow_to` first tells of them.
        if self._marks:
            self._reached = depth

    def grow_to(self, depth: int) -> None:
        reached = self._left + depth
        if reached == self._reached:
            return
        now = self._monotonic()
        if not self._marks or now - self._marks[-1][1] >= self._spacing:
            self._marks.append((self._reached, now))
            # A control API that is away for days must not fill the memory: keep every other mark.
            if len(self._marks) > MARKS:
                self._marks = deque(islice(self._marks, 0, None, 2))
                self._spacing *= 2
        self._reached = reached

    def shrink_by(self, count: int) -> None:
        self._left += count
        # The queue is empty: the next outage begins with the finest spacing again.
        if self._left == self._reached:
            self._marks.clear()
            self._spacing = MARK_SECONDS

    def seconds(self) -> float:
        """Return the age of the oldest item; 0 without items."""
        if not self._marks:
            return 0.0
        # The second mark is at or before the oldest item left: the first describes none any more.
        while len(self._marks) > 1 and self._marks[1][0] <= self._left:
            self._marks.popleft()
        return self._monotonic() - self._marks[0][1]
