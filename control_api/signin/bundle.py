"""What signing in to the console works with, built once at startup."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import Counter

from control_api.log.changes import Changes
from control_api.security.console_settings import ConsoleAddress
from control_api.settings import Settings
from control_api.store.store import Store
from control_api.store.tenant_cache import TenantCache
from policies.ground.clock import Clock

if TYPE_CHECKING:
    # An extra of the package, which takes long to import.
    from control_api.signin.provider import IdentityProvider


@dataclass(frozen=True, slots=True)
class SigningIn:
    """`entropy(n)` returns n random bytes; `identity_provider` is None if people sign in by keys
    only; `refusals` counts callers refused, by reason."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    settings: Settings
    address: ConsoleAddress
    tenants: TenantCache
    identity_provider: "IdentityProvider | None"
    refusals: Counter
