"""Holds the objects that the operations on agents and keys work with, built once at startup."""

from collections.abc import Callable
from dataclasses import dataclass

from control_api.log.append import Changes
from control_api.store.store import Store
from policies.ground.clock import Clock


@dataclass(frozen=True, slots=True)
class Registry:
    """The objects that operations on agents and API keys work with. `entropy(n)` returns n random
    bytes."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
