"""Opens a spool: locks the directory, recovers what the previous process left, builds the parts.
Knows nothing of records."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from policies.ground.clock import Clock
from policies.ground.os_errors import worded
from sidecar.settings.spool import SpoolSettings
from sidecar.spool.errors import SpoolLocked, SpoolUnwritable
from sidecar.spool.reading.backlog import Backlog
from sidecar.spool.recovery import Recovered, recover
from sidecar.spool.resources import SpoolResources
from sidecar.spool.storage.disk import Disk
from sidecar.spool.storage.layout import lock_file
from sidecar.spool.storage.segment_pool import Quota, SegmentPool
from sidecar.spool.writing.instance_rotation import InstanceRotation
from sidecar.spool.writing.maintenance import Maintenance

RETAINED_FRACTION = 8
"""The fraction of `max_bytes` (one in this many) that acknowledged segments may take."""


class SpoolComponents(NamedTuple):
    """The parts of an open spool. `executor` is its one thread besides those of the writer and the
    segment pool; `lock` is the descriptor that holds the directory."""

    maintenance: Maintenance
    rotation: InstanceRotation
    backlog: Backlog
    quota: Quota
    executor: ThreadPoolExecutor
    lock: int


async def open_components(
    settings: SpoolSettings,
    source_id: str,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
    disk: Disk | None,
    quiet_seconds: float,
) -> SpoolComponents:
    """Build the parts. Raises `SpoolLocked` if another process holds the directory,
    `SpoolUnwritable` if it can't be made or read."""
    disk = disk or Disk()
    # One thread, so that file operations on the backlog never overtake each other.
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool-executor")
    in_thread = asyncio.get_running_loop().run_in_executor
    root, size = settings.dir, settings.segment_bytes
    lock: int | None = None
    try:
        # Locked before anything is read: recovery removes files that another process may be using.
        lock = await in_thread(executor, _lock_directory, disk, root)
        found: Recovered = await in_thread(executor, recover, disk, root, source_id, size)
        quota = Quota(settings.max_bytes, found.held)
        keep = settings.max_bytes // RETAINED_FRACTION
        # In mode `strict` the loop must be free to answer when the disk is late.
        resources = SpoolResources(
            root, source_id, size, disk, executor, clock, random_bytes, settings.mode != "strict"
        )
        backlog = Backlog(resources, quota, found.instances, keep)
        maintenance = Maintenance(
            SegmentPool(root, disk, quota, size, found.spares, clock.monotonic),
            backlog,
            resources,
            quiet_seconds,
        )
        # Rotation and maintenance need each other, so maintenance gets the rotation only here.
        rotation = InstanceRotation(resources, backlog, maintenance.wake)
        await maintenance.start(rotation, found)
    except BaseException as error:
        # Do not leave the directory locked by a spool that never opened.
        executor.shutdown(wait=False)
        if lock is not None:
            os.close(lock)
        if isinstance(error, OSError):
            raise SpoolUnwritable(f"the spool can't be opened: {worded(error, root)}") from error
        raise
    return SpoolComponents(maintenance, rotation, backlog, quota, executor, lock)


def _lock_directory(disk: Disk, root: Path) -> int:
    disk.make_directory(root)
    lock = disk.lock(lock_file(root))
    if lock is None:
        raise SpoolLocked(
            f"the spool `{root}` is held by another process: each sidecar needs its own `spool.dir`"
        )
    return lock
