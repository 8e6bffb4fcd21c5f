"""Identifies the caller by its API key (contract, sections 1 and 2). Knows no operation.

It looks a key up by its SHA-256, in the same documents that sidecars decide by.
"""

import hmac

from control_api.auth.principal import Caller, Superadmin
from control_api.caches.tenant_cache import TenantCache
from control_api.caches.tenant_state import TenantState
from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, Unauthorized
from policies.ground.keys import key_digest, well_formed


class Authenticator:
    """`superadmin` is the SHA-256 of the superadmin's key, or None if there is no such key."""

    def __init__(
        self, tenants: TenantCache, superadmin: bytes | None, clock: Clock, instruments: Instruments
    ) -> None:
        self._tenants = tenants
        self._superadmin = superadmin
        self._now = clock.now
        self._refusals = instruments.http.refusals

    async def __call__(self, presented: str | None) -> Caller | Superadmin:
        """The caller. Raises `Unauthorized` if no key is presented, `Forbidden` if the key is not
        valid."""
        if not presented:
            self._refusals.labels(RefusalReason.missing).inc()
            raise Unauthorized
        digest = key_digest(presented)
        # Compare in constant time: timing must not reveal how much of the digest matches.
        if self._superadmin is not None and hmac.compare_digest(digest, self._superadmin):
            return Superadmin(digest)
        # Most keys were seen before, and their document is in memory: no task has to wait.
        tenant = self._tenants.known_owner(digest)
        key = None if tenant is None else tenant.known_key(digest)
        if tenant is None or key is None:
            tenant, key = await self._look_up(presented, digest)
        if not key.live(self._now()):
            raise self._refused(RefusalReason.expired, "the API key has expired")
        if not tenant.active:
            raise self._refused(RefusalReason.deactivated, "the API key's tenant is deactivated")
        return Caller(tenant, key, digest)

    async def _look_up(self, presented: str, digest: bytes) -> tuple[TenantState, Key]:
        """The key and its tenant, from memory or the store."""
        tenant = self._tenants.known_owner(digest)
        # The checksum keeps guessed keys away from the store: they cost a hash, not a query.
        if tenant is None and well_formed(presented):
            tenant = await self._tenants.owner(digest)
        key = None if tenant is None else await tenant.find_key(digest)
        # A revoked key has no document from the moment its revocation is answered. It gets the
        # message of an unknown key: a caller can't probe which keys once existed.
        if tenant is None or key is None:
            raise self._refused(RefusalReason.unknown, "the API key is not valid")
        return tenant, key

    def _refused(self, why: RefusalReason, message: str) -> Forbidden:
        self._refusals.labels(why).inc()
        return Forbidden(message)
