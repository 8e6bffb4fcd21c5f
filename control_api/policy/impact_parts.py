"""What the loop of impact runs works with."""

from collections.abc import Callable
from typing import NamedTuple

from control_api.database_limits import DatabaseLimits
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.signing import KeyRing


class ImpactParts(NamedTuple):
    """`database_url` and `database` say how a run's process opens the database; `entropy(n)`
    returns n random bytes."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    checkpoints: CheckpointMaker
    ring: KeyRing
    database_url: str
    database: DatabaseLimits
