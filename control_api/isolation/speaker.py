"""The key that speaks, as far as isolation has to know it."""

from typing import Protocol

from control_api.caches.tenant_state import TenantState
from policies.definitions.model import Key


class Speaker(Protocol):
    """A caller with a key (`control_api.auth.principal.Caller`)."""

    @property
    def tenant(self) -> TenantState: ...

    @property
    def key(self) -> Key: ...

    @property
    def digest(self) -> bytes | None: ...


def enrolled_agent(caller: Speaker) -> str | None:
    """The agent as which the caller's pod enrolled; None if the key is not of an enrolment."""
    return None if caller.digest is None else caller.tenant.enrolled_agent(caller.digest)
