"""Who calls, once that is known. Knows no header and no route."""

from dataclasses import dataclass

from control_api.caches.tenant_state import TenantState
from policies.definitions.model import Key


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant's key, live at the moment of the request."""

    tenant: TenantState
    key: Key
    digest: bytes

    @property
    def scope(self) -> str:
        return self.key.scope

    @property
    def by(self) -> str:
        """What the audit trail calls this caller."""
        return self.key.key_id

    async def live(self, now: int) -> bool:
        """Whether the key still is what it was when it was presented: not revoked, not expired."""
        await self.tenant.need_key(self.digest)
        key = self.tenant.policy_set.key(self.digest)
        return key is not None and key.live(now) and self.tenant.active


@dataclass(frozen=True, slots=True)
class Superadmin:
    """The superadmin's key, which belongs to no tenant."""

    scope: str = "superadmin"
    by: str = "superadmin"
