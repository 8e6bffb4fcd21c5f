"""Removes what is shipped from the disk: segments, and whole instances. Each method blocks, and
runs in the spool's one thread.

A segment that can't be removed keeps its room, and is tried again at the next acknowledgement.
Knows nothing of records.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.spool.instance import Instance, Segment
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import aside_directory, write_acked
from sidecar.spool.storage.segment_pool import reuse

log = logging.getLogger(__name__)


class ShippedFiles:
    """`monotonic` is a clock in seconds, for the pauses between log lines."""

    def __init__(self, disk: Disk, monotonic: Callable[[], float]) -> None:
        self._disk = disk
        self._left: deque[Segment] = deque()
        # One for each operation that can fail: when one works again, the outage of another has not
        # ended.
        self._removing, self._emptying, self._noting, self._retiring = (
            RepeatingOutageLogger(log, "tidying the spool", back, monotonic)
            for back in (
                "shipped segments are removed again",
                "shipped segments are emptied again",
                "acknowledgements are noted again",
                "finished instances are removed again",
            )
        )

    def remove(self, instance: Instance, acked: int, finished: Iterable[Segment]) -> int:
        """Delete segments and note how far the instance is acknowledged. Returns the bytes freed,
        including those of segments that could not be removed earlier."""
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
        """Turn a segment with `used` written bytes into a spare. Returns whether it became one."""
        try:
            reuse(self._disk, segment.path, used, spare)
        except OSError as error:
            self._emptying.failing_on("a shipped segment can't be emptied", segment.path, error)
            return False
        self._emptying.recovered()
        return True

    def retire(self, instance: Instance) -> int | None:
        """Remove the directory, or set it aside. Returns the bytes freed; None on failure."""
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
