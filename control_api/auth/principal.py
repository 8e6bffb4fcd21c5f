"""The authenticated caller. Knows no header and no route."""

from dataclasses import dataclass
from typing import NamedTuple

from control_api.caches.tenant_state import TenantState
from policies.definitions.model import Key


class Caller(NamedTuple):
    """A key of a tenant, live when the request was authenticated."""

    tenant: TenantState
    key: Key
    digest: bytes

    @property
    def tenant_id(self) -> str:
        return self.tenant.tenant_id

    @property
    def scope(self) -> str:
        return self.key.scope

    @property
    def by(self) -> str:
        """The caller's name in the audit trail."""
        return self.key.key_id

    async def live(self, now: int) -> bool:
        """Whether the key is still live: not revoked, not expired, its tenant active."""
        # Asked again after a long poll, because the change that ends it may have revoked the key.
        key = await self.tenant.find_key(self.digest)
        return key is not None and key.live(now) and self.tenant.active


@dataclass(frozen=True, slots=True)
class Superadmin:
    """The superadmin's key, which belongs to no tenant."""

    scope: str = "superadmin"
    by: str = "superadmin"
