"""The objects and figures that the parts of a spool share."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from policies.ground.clock import Clock
from sidecar.spool.storage.disk import Disk


@dataclass(frozen=True, slots=True)
class SpoolResources:
    """`source` is the sidecar id under which records are made. `executor` runs file operations that
    are neither the writer's nor the segment pool's. `in_loop`: the event loop itself may wait for a
    disk that is fast."""

    root: Path
    source: str
    segment_bytes: int
    disk: Disk
    executor: Executor
    clock: Clock
    random_bytes: Callable[[int], bytes]
    in_loop: bool
