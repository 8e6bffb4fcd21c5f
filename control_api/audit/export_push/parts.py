"""What the loops that push decisions work with."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from control_api.metrics.metrics import ExportMetrics
from control_api.security.export_targets import ExportTarget
from control_api.store.store import Store
from policies.ground.clock import Clock


class ExportParts(NamedTuple):
    """`alone` says that no other process uses the database; `stopping` is set once the service
    drains; `entropy(n)` returns n random bytes."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    metrics: ExportMetrics
    targets: Sequence[ExportTarget]
    alone: bool
    stopping: asyncio.Event
