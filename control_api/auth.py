"""Identifies the caller by its API key, and limits how often a key may call (`CONTRACT.md`,
Authentication, Scopes).

A key is looked up by its SHA-256, in the same documents that sidecars decide by. `RateLimit` wraps
the authenticator if a limit is configured. Console sessions that were opened with a key share that
key's rate limit. A person who signed in by OpenID Connect has a rate limit of their own.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from typing import NamedTuple, Protocol

from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from control_api.store.schema.features import SUPERADMIN_REALM
from control_api.store.tenant_cache import TenantCache
from control_api.store.tenant_state import TenantState
from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, TooMany, Unauthorized, Unavailable
from policies.ground.keys import key_digest, well_formed


class Caller(NamedTuple):
    """The caller of a request: an API key of a tenant, which was live when the request was
    authenticated.

    `digest` is the key's SHA-256. It is None for a person who signed in to the console by OpenID
    Connect: `key` is then made for the session, with the person's name as its id, the scope that
    the person's groups give, and the session's expiry. `session_lives` returns whether the console
    session has not ended meanwhile; it is None for a request with a key.
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
        """Return whether the key allows this sidecar id. `control_api.fleet` also checks that no
        other key uses the id."""
        return self.key.may_speak_as_sidecar(sidecar_id)

    async def live(self, now: int) -> bool:
        """Return whether the key is still live at `now`: not revoked, not expired, its tenant
        active, and its console session, if any, not ended."""
        # Asked again after a long wait, because the change that ends it may have revoked the key.
        key = self.key if self.digest is None else await self.tenant.find_key(self.digest)
        if key is None or not key.live(now) or not self.tenant.active:
            return False
        return self.session_lives is None or await self.session_lives()

    async def require_live(self, now: int) -> None:
        """Raise `Forbidden` unless the key is still live at `now` (microseconds)."""
        if not await self.live(now):
            raise Forbidden("the API key is no longer valid, or its tenant was deactivated")


@dataclass(frozen=True, slots=True)
class Superadmin:
    """The superadmin as the caller of a request, who belongs to no tenant. `digest` is the SHA-256
    of the superadmin's key. It is None for a person who signed in to the console by OpenID Connect:
    `by` is then the person's name in the audit trail."""

    digest: bytes | None
    scope: str = "superadmin"
    by: str = "superadmin"


def realm_of(caller: Caller | Superadmin) -> str:
    """Return the name under which the caller's console sessions are stored: its tenant's id, or for
    the superadmin a realm that is no tenant."""
    return caller.tenant_id if isinstance(caller, Caller) else SUPERADMIN_REALM


_log = logging.getLogger("sluice.keys")


class Authenticator:
    """Checks API keys. `superadmin` is the SHA-256 of the superadmin's key, or None if there is no
    such key."""

    def __init__(
        self, tenants: TenantCache, superadmin: bytes | None, clock: Clock, instruments: Instruments
    ) -> None:
        self._tenants = tenants
        self._superadmin = superadmin
        self._now = clock.now
        self._refusals = instruments.http.refusals
        self._revoked = RevokedKeyLog(tenants, clock)

    async def __call__(self, presented: str | None) -> Caller | Superadmin:
        """Return the caller that presents this key. Raise `Unauthorized` if no key is presented,
        and `Forbidden` if the key is not valid."""
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
        """Find the key and its tenant, in memory or in the store. Raise `Forbidden` if the key is
        unknown or was revoked."""
        tenant = self._tenants.known_owner(digest)
        # The checksum keeps guessed keys away from the store: they cost a hash, not a query.
        if tenant is None and well_formed(presented):
            tenant = await self._tenants.owner(digest)
        key = None if tenant is None else await tenant.find_key(digest)
        # A revoked key has no document from the moment its revocation is answered. It gets the
        # message of an unknown key: a caller can't probe which keys once existed.
        if tenant is None or key is None:
            if tenant is not None:
                await self._revoked.called(tenant.tenant_id, digest)
            raise self._refused(RefusalReason.unknown, "the API key is not valid")
        return tenant, key

    def _refused(self, why: RefusalReason, message: str) -> Forbidden:
        self._refusals.labels(why).inc()
        return Forbidden(message)


REPEAT_SECONDS = 3600.0
"""The least seconds between two log lines about calls with the same revoked key."""
MAX_LOGGED = 4096
"""The most revoked keys for which the time of the last log line is remembered."""


class RevokedKeyLog:
    """Logs that a revoked key is still in use, once an hour for each key. The caller is only told
    that the key is not valid, so only this log line says whose key it was."""

    def __init__(self, tenants: TenantCache, clock: Clock) -> None:
        self._tenants = tenants
        self._monotonic = clock.monotonic
        self._logged_at: dict[bytes, float] = {}

    async def called(self, tenant_id: str, digest: bytes) -> None:
        """Handle a call with a key that belongs to the tenant but is not in force: log it if the
        key was revoked, unless that was done within the last hour."""
        now = self._monotonic()
        if now - self._logged_at.get(digest, -inf) < REPEAT_SECONDS:
            return
        # Noted before the read: calls that arrive during it need no line and no read.
        self._logged_at.pop(digest, None)
        while len(self._logged_at) >= MAX_LOGGED:
            self._logged_at.pop(next(iter(self._logged_at)))
        self._logged_at[digest] = now
        try:
            key = await self._tenants.revoked_key(tenant_id, digest)
        except Unavailable:
            # The answer does not depend on it: the key is refused, and the next call is logged.
            self._logged_at.pop(digest, None)
            return
        # A key that a pod enrolled for ends without a revocation, and its sidecar gets another.
        if key is not None:
            _log.warning(
                "a call with key %s of tenant `%s` was refused, as the key is revoked: its user "
                "needs a new one, or somebody else has it (told once an hour)",
                key,
                tenant_id,
            )


BURST_SECONDS = 1.0
"""The time in seconds that gives a token bucket's capacity: the number of requests that its key may
make within it."""
MAX_BUCKETS = 65_536
# Seconds: rounding in the sums below must not refuse a client that is exactly on time.
_ROUNDING = 1e-6
# A sidecar delivers the records of many agents, and its policy set carries revocations. The
# superadmin must get in even when everyone else is over the limit.
UNLIMITED = frozenset({"sidecar", "superadmin"})
"""The scopes whose keys have no rate limit."""


class NextAuthenticator(Protocol):
    async def __call__(self, presented: str | None) -> Caller | Superadmin: ...


class OverLimit(TooMany):
    """the key is over its rate limit"""

    def __init__(self, rate: int, seconds: float) -> None:
        self.headers = {"Retry-After": str(max(1, ceil(seconds)))}
        super().__init__(f"the key is over its rate limit of {rate} requests per second")


class RateLimit:
    """An authenticator that also limits the rate of requests. Each key may make `rate` requests per
    second, and as many at once. Keys of the scopes in `UNLIMITED` have no limit."""

    def __init__(
        self, authenticate: NextAuthenticator, rate: int, clock: Clock, instruments: Instruments
    ) -> None:
        self._authenticate = authenticate
        self._rate = rate
        self._now = clock.monotonic
        self._refused = instruments.http.refusals.labels(RefusalReason.rate)
        # A bucket is one number, the time at which it is full again. A missing bucket counts as
        # full, so memory is bounded by the keys that called within the last second.
        self._full_at: dict[str, float] = {}

    async def __call__(self, presented: str | None) -> Caller | Superadmin:
        """Return the caller that presents this key. Raise `OverLimit` if the key is over its rate
        limit."""
        caller = await self._authenticate(presented)
        self.admit(caller)
        return caller

    def admit(self, caller: Caller | Superadmin) -> None:
        """Count a request of an authenticated caller. Raise `OverLimit` if the caller is over its
        rate limit."""
        if caller.scope not in UNLIMITED:
            self._take(caller.by)

    @property
    def buckets(self) -> int:
        return len(self._full_at)

    def _take(self, key_id: str) -> None:
        now = self._now()
        # Popped and inserted again, so the dictionary stays in order of the last request.
        full_at = max(self._full_at.pop(key_id, now), now)
        # A refused request takes no token, so a client that keeps knocking gets in once it is due.
        wait = full_at + 1 / self._rate - now - BURST_SECONDS
        self._full_at[key_id] = full_at if wait > _ROUNDING else full_at + 1 / self._rate
        self._drop_buckets(now)
        if wait > _ROUNDING:
            self._refused.inc()
            raise OverLimit(self._rate, wait)

    def _drop_buckets(self, now: float) -> None:
        """Delete those of the two least recently used buckets that are full, or too many."""
        # Two, because a request adds at most one: old buckets get fewer without a full sweep.
        for key_id in tuple(islice(self._full_at, 2)):
            if self._full_at[key_id] <= now or len(self._full_at) > MAX_BUCKETS:
                del self._full_at[key_id]
