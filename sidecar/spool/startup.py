"""A directory taken, what a former life left in it found, and the parts that go on from there.
Knows what each part is given; knows nothing of records.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from policies.ground.clock import Clock
from sidecar.settings.spool import SpoolSettings
from sidecar.spool.backlog import Backlog
from sidecar.spool.disk import Disk
from sidecar.spool.errors import SpoolLocked, SpoolUnwritable
from sidecar.spool.instance_rotation import InstanceRotation
from sidecar.spool.layout import lock_file
from sidecar.spool.maintenance import Maintenance
from sidecar.spool.quota import Quota
from sidecar.spool.recovery import Recovered, recover
from sidecar.spool.segment_pool import SegmentPool

KEPT_SHARE = 8
"""Of `max_bytes`, an eighth may hold what is acknowledged already."""


class SpoolComponents(NamedTuple):
    """Of an open spool. `chores` is its one thread beside the writer's, `lock` the descriptor that
    holds the directory."""

    keeper: Maintenance
    succession: InstanceRotation
    backlog: Backlog
    space: Quota
    chores: ThreadPoolExecutor
    lock: int


async def open_parts(
    settings: SpoolSettings,
    source_id: str,
    clock: Clock,
    entropy: Callable[[int], bytes],
    disk: Disk,
) -> SpoolComponents:
    """`SpoolLocked` where another process has the directory, `SpoolUnwritable` where it can't be
    made or read."""
    chores = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool-chores")
    in_thread = asyncio.get_running_loop().run_in_executor
    root, size = settings.dir, settings.segment_bytes
    lock: int | None = None
    try:
        lock = await in_thread(chores, _take, disk, root)
        found: Recovered = await in_thread(chores, recover, disk, root, source_id, size)
        space = Quota(settings.max_bytes, found.held)
        keep = settings.max_bytes // KEPT_SHARE
        backlog = Backlog(disk, chores, clock, space, found.instances, keep)
        keeper = Maintenance(
            SegmentPool(root, disk, space, size, found.spares), backlog, chores, entropy
        )
        succession = InstanceRotation(
            root, source_id, disk, chores, clock, entropy, backlog, size, keeper.wake
        )
        await keeper.start(succession, found)
    except BaseException as error:
        chores.shutdown(wait=False)
        if lock is not None:
            os.close(lock)
        if isinstance(error, OSError):
            raise SpoolUnwritable(f"the spool `{root}` can't be opened: {error}") from error
        raise
    return SpoolComponents(keeper, succession, backlog, space, chores, lock)


def _take(disk: Disk, root: Path) -> int:
    disk.make_directory(root)
    lock = disk.lock(lock_file(root))
    if lock is None:
        raise SpoolLocked(f"the spool `{root}` is held by another process")
    return lock
