"""Spare segments, filled with zeros ahead of need, and the quota that limits all segments.

A spare is written to its last byte and synced before it counts. So it doubles as the room kept for
denials on a full disk: other programs could take space that is only promised. A segment whose
records may go becomes a spare again. Knows when there is no room, but not what follows from that.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from policies.ground.os_errors import worded
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import spare_file, spare_ordinal


class Quota:
    """Counts the bytes of all segment files. A segment counts in full before it is written."""

    def __init__(self, limit: int, held: int) -> None:
        self.held = held
        self._limit = limit

    def fits(self, size: int) -> bool:
        return self.held + size <= self._limit

    def reserve(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size


class SegmentPool:
    """Makes spares of `size` bytes in `root`, one at a time."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        quota: Quota,
        size: int,
        found: Iterable[Path],
        monotonic: Callable[[], float],
    ) -> None:
        self.size = size
        self.disk_fault: str | None = None
        """The reason why the disk has no room for another spare, without its path; None if it has
        room."""
        self._root = root
        self._disk = disk
        # Its own thread: queued behind reads, a spare would come too late.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool-spares")
        self._quota = quota
        # Continue after the ordinals of the previous process: no two spares may share a name.
        self._last_ordinal = max((spare_ordinal(path) or 0 for path in found), default=0)
        self._pending: asyncio.Future[None] | None = None
        # A spool may be without a spare for days before it is full, which then needs its own line.
        self._consequence = ""
        self._outage = RepeatingOutageLogger(
            logging.getLogger(__name__),
            "the spool gets no more room",
            "the spool has room for more records again",
            monotonic,
        )

    async def make(self, occupied_by: Callable[[], str], *, denials_only: bool) -> Path | None:
        """Make one spare. Returns None if `max_bytes` or the disk leaves no room; `occupied_by`
        says what fills it up to `max_bytes`. The log then also says if ALLOWs are refused already
        (`denials_only`)."""
        self._consequence = "; only denials are recorded" if denials_only else ""
        if not self._quota.fits(self.size):
            self.disk_fault = None  # the disk is not asked
            self._outage.failing(f"`max_bytes` is reached: {occupied_by()}{self._consequence}")
            return None
        return await self.make_beyond()

    async def make_beyond(self) -> Path | None:
        """Make one spare, beyond `max_bytes` too. Returns None if the disk leaves no room."""
        path = self.next_name()
        # Reserved before the file exists: the limit holds even while it is being written.
        self._quota.reserve(self.size)
        loop = asyncio.get_running_loop()
        self._pending = loop.run_in_executor(self._thread, self._make, path)
        try:
            # Shielded: a thread can't be cancelled, and the file would be made all the same.
            await asyncio.shield(self._pending)
        except OSError as error:
            self._quota.release(self.size)
            self.disk_fault = worded(error)
            why = f"a segment can't be made: {worded(error, self._root)}"
            self._outage.failing(why + self._consequence)
            return None
        self.disk_fault = None
        self._outage.recovered()
        return path

    def next_name(self) -> Path:
        """Return the path for another spare."""
        self._last_ordinal += 1
        return spare_file(self._root, self._last_ordinal)

    async def close(self, seconds: float) -> None:
        """Wait for a spare in the making: the directory's next owner must not find a file that is
        still being written."""
        if self._pending is not None:
            await asyncio.wait([self._pending], timeout=seconds)
        self._thread.shutdown(wait=False)

    def _make(self, path: Path) -> None:
        # If we die before the rename, the next start removes the unfinished file.
        unfinished = _unfinished(path)
        self._disk.create_zeroed(unfinished, self.size)
        self._disk.rename(unfinished, path)


def reuse(disk: Disk, segment: Path, used: int, spare: Path) -> None:
    """Turn a segment whose first `used` bytes were written into a spare. Blocks. Raises `OSError`;
    then neither file is left, unless the disk can't even remove them."""
    unfinished = _unfinished(spare)
    try:
        disk.rename(segment, unfinished)
        # Synced first: zeros that a power cut leaves under the old name would look like damage. If
        # we die from here on, the next start removes the unfinished file.
        disk.sync_directory(segment.parent)
        disk.sync_directory(spare.parent)
        disk.rewrite(unfinished, bytes(used))
        # Only zeros are left in it. If we die after this, it is a spare like any other.
        disk.rename(unfinished, spare)
    except OSError:
        for each in (segment, unfinished):
            with contextlib.suppress(OSError):  # report the first failure
                disk.remove(each)
        raise


def _unfinished(spare: Path) -> Path:
    return spare.with_name(spare.name + ".tmp")
