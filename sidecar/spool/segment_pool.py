"""Segments of zeros, made ahead of need. Knows when there is no room, not what that means.

A spare is written out to its last byte and synced before it is one. So it is also the room for
denials once the disk is full: a reservation that is only promised can be taken by others.
"""

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sidecar.spool.disk import Disk
from sidecar.spool.layout import spare_file, spare_ordinal
from sidecar.spool.quota import Quota
from sidecar.spool.state_logger import StateLogger


class SegmentPool:
    """Makes one at a time, `size` bytes each, in `root`."""

    def __init__(
        self, root: Path, disk: Disk, space: Quota, size: int, found: Iterable[Path]
    ) -> None:
        self.size = size
        self._root = root
        self._disk = disk
        # A thread of its own: behind a queue of reads a spare would come too late.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool-spares")
        self._space = space
        # Above those of a former life: a name is used once.
        self._made = max((spare_ordinal(path) or 0 for path in found), default=0)
        self._making: asyncio.Future[None] | None = None
        self._trouble = StateLogger(logging.getLogger(__name__), "room in the spool")

    async def make(self) -> Path | None:
        """None where there is no room, by `max_bytes` or by the disk."""
        if not self._space.fits(self.size):
            self._trouble.is_("`max_bytes` is reached: the control API does not take the records")
            return None
        self._made += 1
        path = spare_file(self._root, self._made)
        self._space.take(self.size)
        loop = asyncio.get_running_loop()
        self._making = loop.run_in_executor(self._thread, self._make, path)
        try:
            await asyncio.shield(self._making)
        except OSError as error:
            self._space.give(self.size)
            self._trouble.is_(f"a segment can't be made: {error}")
            return None
        self._trouble.over()
        return path

    async def close(self, seconds: float) -> None:
        """Whoever takes the directory next must not find a file still being written."""
        if self._making is not None:
            await asyncio.wait([self._making], timeout=seconds)
        self._thread.shutdown(wait=False)

    def _make(self, path: Path) -> None:
        # If we die before it has its name, the next start removes what there is.
        unfinished = path.with_name(path.name + ".tmp")
        self._disk.create_zeroed(unfinished, self.size)
        self._disk.rename(unfinished, path)
