"""The authenticated caller. Knows no header and no route."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from control_api.store.schema.features import SUPERADMIN_REALM
from control_api.store.tenant_state import TenantState
from policies.definitions.model import Key
from policies.ground.errors import Forbidden


class Caller(NamedTuple):
    """A key of a tenant, live when the request was authenticated.

    `digest` is the key's SHA-256. It is None for a person who signed in to the console by OpenID
    Connect: `key` is then made for the session, with the person's name as its id, the scope that
    the person's groups give, and the session's expiry. `session_lives` says whether the session of
    the console has not ended meanwhile; it is None for a request with a key.
    """

    tenant: TenantState
    key: Key
    digest: bytes | None
    session_lives: Callable[[], Awaitable[bool]] | None = None

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

    def may_speak_for_agent(self, agent_id: str | None) -> bool:
        return self.key.may_speak_for_agent(agent_id)

    def may_speak_as_sidecar(self, sidecar_id: str) -> bool:
        """As far as the key itself says it; `control_api.fleet` says the rest."""
        return self.key.may_speak_as_sidecar(sidecar_id)

    async def live(self, now: int) -> bool:
        """Whether the key is still live: not revoked, not expired, its tenant active, its session
        not ended."""
        # Asked again after a long wait, because the change that ends it may have revoked the key.
        key = self.key if self.digest is None else await self.tenant.find_key(self.digest)
        if key is None or not key.live(now) or not self.tenant.active:
            return False
        return self.session_lives is None or await self.session_lives()

    async def require_live(self, now: int) -> None:
        """Raises `Forbidden` unless the key is still live, as of `now` (microseconds)."""
        if not await self.live(now):
            raise Forbidden("the API key is no longer valid, or its tenant was deactivated")


@dataclass(frozen=True, slots=True)
class Superadmin:
    """The superadmin, who belongs to no tenant. `digest` is the SHA-256 of the superadmin's key. It
    is None for a person who signed in to the console by OpenID Connect: `by` is then the person's
    name in the audit trail."""

    digest: bytes | None
    scope: str = "superadmin"
    by: str = "superadmin"


def realm_of(caller: Caller | Superadmin) -> str:
    """Where the caller's sessions of the console are stored: its tenant, or the superadmin's realm,
    which is no tenant."""
    return caller.tenant_id if isinstance(caller, Caller) else SUPERADMIN_REALM
