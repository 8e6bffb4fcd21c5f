"""Decides which acknowledged segments stay on disk for a while: a control API restored from a
backup of its database holds fewer records than it signed for. Removes shipped segments from the
disk.

A segment that can't be removed still counts against the limit, and is tried again at the next
acknowledgement.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.spool.instance import Instance, Segment
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import aside_directory, reuse, write_acked

RETAIN_SECONDS = 900.0
"""The seconds for which an acknowledged segment stays on disk. It may contain personal data."""

log = logging.getLogger(__name__)


class _RetainedSegment(NamedTuple):
    since: float
    instance: Instance
    size: int


class RetainedInstances:
    """The acknowledged segments that stay on disk, in the order in which they were acknowledged. In
    each instance these are the first `Instance.retained` segments. They take at most `limit`
    bytes."""

    def __init__(self, monotonic: Callable[[], float], limit: int) -> None:
        self._monotonic = monotonic
        self._limit = limit
        self._bytes = 0
        self._retained: deque[_RetainedSegment] = deque()

    def retain(self, instance: Instance) -> None:
        before = instance.retained
        instance.count_retained()
        now = self._monotonic()
        for segment in islice(instance.segments, before, instance.retained):
            self._retained.append(_RetainedSegment(now, instance, segment.size))
            self._bytes += segment.size

    def retain_again(self, instance: Instance) -> None:
        """Build the list again for an instance that now has fewer acknowledged records than
        before."""
        # Its segments now stay longer: the control API is about to take them again.
        self.drop(instance)
        instance.retained = 0
        self.retain(instance)

    def drop(self, instance: Instance) -> None:
        self._bytes -= sum(each.size for each in self._retained if each.instance is instance)
        self._retained = deque(each for each in self._retained if each.instance is not instance)

    def pop_expired(self, *, everything: bool) -> Instance | None:
        """Stop retaining the oldest segment if its time is up, if the segments take too much room,
        or with `everything`. Returns the instance whose first segment is then free to be deleted;
        None if there is no such segment."""
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


class ShippedFiles:
    """Removes or empties the files of shipped segments. `monotonic` is a clock in seconds, for the
    pauses between log lines."""

    def __init__(self, disk: Disk, monotonic: Callable[[], float]) -> None:
        self._disk = disk
        self._left: deque[Segment] = deque()

        # One for each operation that can fail: when one works again, the outage of another has not
        # ended.
        def logger(back: str) -> RepeatingOutageLogger:
            return RepeatingOutageLogger(log, "tidying the spool", f"{back} again", monotonic)

        self._removing = logger("shipped segments are removed")
        self._emptying = logger("shipped segments are emptied")
        self._noting = logger("acknowledgements are noted")
        self._retiring = logger("finished instances are removed")

    def remove(self, instance: Instance, acked: int, finished: Iterable[Segment]) -> int:
        """Delete these segments, and note on disk how far the instance is acknowledged. Returns the
        bytes freed, including those of segments that could not be removed earlier."""
        # Delete first: a full disk may have no room for the note.
        freed = self._remove(finished)
        try:
            write_acked(self._disk, instance.path, acked)
        except OSError as error:
            self._noting.failing_on("an acknowledgement can't be noted", instance.path, error)
        else:
            self._noting.recovered()
        return freed

    def _remove(self, finished: Iterable[Segment]) -> int:
        # If we die, the next start finds what is left.
        self._left += finished
        freed = 0
        while self._left:
            segment = self._left[0]
            try:
                self._disk.remove(segment.path)
            except OSError as error:
                self._removing.failing_on("a shipped segment can't be removed", segment.path, error)
                return freed
            freed += self._left.popleft().size
            if not self._left:
                self._removing.recovered()
        return freed

    def reuse(self, segment: Segment, used: int, spare: Path) -> bool:
        """Turn a segment with `used` written bytes into a spare segment. Returns whether that
        succeeded."""
        try:
            reuse(self._disk, segment.path, used, spare)
        except OSError as error:
            self._emptying.failing_on("a shipped segment can't be emptied", segment.path, error)
            return False
        self._emptying.recovered()
        return True

    def retire(self, instance: Instance) -> int | None:
        """Remove the instance's directory, or set it aside if an operator should look at it.
        Returns the bytes freed; None on failure."""
        try:
            if instance.ending is not None and instance.ending.aside:
                aside = aside_directory(instance.path, instance.ending.aside)
                self._disk.rename(instance.path, aside)
                self._disk.sync_directory(aside.parent)
                self._left = deque(each for each in self._left if each.path.parent != instance.path)
                # The directory still takes its room: nothing is freed until an operator removes it.
                return 0
            self._disk.remove_directory(instance.path)
        except OSError as error:
            self._retiring.failing_on("a finished instance can't be removed", instance.path, error)
            return None
        self._retiring.recovered()
        return sum(segment.size for segment in instance.segments)
