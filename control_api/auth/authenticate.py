"""Identifies the caller by its API key (contract, sections 1 and 2). Knows no operation.

It looks a key up by its SHA-256, in the same documents that sidecars decide by.
"""

import hmac

from control_api.auth.principal import Caller, Superadmin
from control_api.caches.tenant_cache import TenantCache
from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
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
            return Superadmin()
        return await self._tenant_caller(presented, digest)

    async def _tenant_caller(self, presented: str, digest: bytes) -> Caller:
        tenant = self._tenants.known_owner(digest)
        # The checksum keeps guessed keys away from the store: they cost a hash, not a query.
        if tenant is None and well_formed(presented):
            tenant = await self._tenants.owner(digest)
        if tenant is None:
            raise self._refused(RefusalReason.unknown, "the API key is not valid")
        key = await tenant.find_key(digest)
        # A revoked key has no document from the moment its revocation is answered. It gets the
        # message of an unknown key: a caller can't probe which keys once existed.
        if key is None:
            raise self._refused(RefusalReason.unknown, "the API key is not valid")
        if not key.live(self._now()):
            raise self._refused(RefusalReason.expired, "the API key has expired")
        if not tenant.active:
            raise self._refused(RefusalReason.deactivated, "the API key's tenant is deactivated")
        return Caller(tenant, key, digest)

    def _refused(self, why: RefusalReason, message: str) -> Forbidden:
        self._refusals.labels(why).inc()
        return Forbidden(message)
