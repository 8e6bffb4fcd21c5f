"""What the operations on tenants work with, built once at startup."""

from collections.abc import Callable
from dataclasses import dataclass

from control_api.log.changes import Changes
from control_api.log.tenant_change import TenantChanges
from control_api.policy.bundle import Policies
from control_api.settings import Settings
from control_api.store.store import Store
from policies.ground.clock import Clock


@dataclass(frozen=True, slots=True)
class Tenants:
    """`entropy(n)` returns n random bytes; `settings` bind every tenant; a new tenant's policies
    are loaded from its files by `policies`."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    changing: TenantChanges
    settings: Settings
    policies: Policies
