"""Which segments stay though all of them is acknowledged, since when, and which goes next.

A control API whose database was put back to an older copy holds less than it signed for, and can
be sent again what it lost: so they stay for a while, as long as nobody needs their room. Touches
no file.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from sidecar.spool.instance import Instance

KEEP_SECONDS = 900.0
"""How long a segment stays of which all is acknowledged. They hold what is personal, too."""


class _One(NamedTuple):
    since: float
    instance: Instance
    size: int


class RetainedInstances:
    """In the order in which they were acknowledged; of each instance the first segments, so many
    as `Instance.kept` says. At most `most` bytes of them stay."""

    def __init__(self, monotonic: Callable[[], float], most: int) -> None:
        self._monotonic = monotonic
        self._most = most
        self._bytes = 0
        self._kept: deque[_One] = deque()

    def note(self, instance: Instance) -> None:
        """What of it is kept from now on."""
        before = instance.kept
        instance.count_kept()
        now = self._monotonic()
        for segment in islice(instance.segments, before, instance.kept):
            self._kept.append(_One(now, instance, segment.size))
            self._bytes += segment.size

    def note_anew(self, instance: Instance) -> None:
        """Less of it is acknowledged than was."""
        self.drop(instance)
        instance.kept = 0
        self.note(instance)

    def drop(self, instance: Instance) -> None:
        """Nothing of it is kept."""
        self._bytes -= sum(each.size for each in self._kept if each.instance is instance)
        self._kept = deque(each for each in self._kept if each.instance is not instance)

    def next(self, *, all_of_it: bool) -> Instance | None:
        """The instance whose first segment goes now, and counts as kept no more; None where none
        has to go."""
        if not self._kept:
            return None
        old = self._monotonic() - self._kept[0].since > KEEP_SECONDS
        if not (all_of_it or old or self._bytes > self._most):
            return None
        gone = self._kept.popleft()
        self._bytes -= gone.size
        gone.instance.kept -= 1
        return gone.instance
