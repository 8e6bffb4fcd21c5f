"""Refuses requests in which a sidecar's key names agents or sidecars that are not its own, and
limits how many spools it may begin.

Each refusal is counted, and recorded in the tenant's log as `key.isolation_violation`: the alert
rule of that type reads those entries. The number of records is limited, because the holder of a key
can try as fast as the service answers.

A key may use these ids for its sidecars:

    the key has `sidecar_ids`     those that its patterns match
    it has none                   every id that no other live key uses

An id belongs to the first key that uses it, until that key is revoked or expires, or a key for the
same agents takes its place. So replicas that share a key, and the pods of an agent, may each have
an id of their own. A sidecar can continue with a new key, and no key takes the id of another
agent's sidecar.

The number of spools is limited because a spool is a row that stays, and each verification of the
log follows it. A sidecar begins one at its first start, and whenever it has lost its volume; a
thief of its key could begin one with every request. Spools are counted in this process only, and
only after they were begun: a batch that fails and is sent again counts once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, NamedTuple, Protocol

from sqlalchemy import select

from control_api.log.append import Log
from control_api.metrics.labels import Foreign
from control_api.metrics.metrics import HttpMetrics
from control_api.registry import queries
from control_api.registry.enrolment.enrolment import Buckets
from control_api.registry.queries import POD_OWNER_PREFIX, IdClaimant
from control_api.store.queries.sidecar_rows import KEPT, VIOLATION
from control_api.store.schema.log import sources
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from control_api.store.tenant_state import TenantState
from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, SluiceError, TooMany
from policies.trail.change import change_record


class KeyedCaller(Protocol):
    """A caller with an API key, as `control_api.auth.Caller`."""

    @property
    def tenant(self) -> TenantState: ...

    @property
    def key(self) -> Key: ...

    @property
    def digest(self) -> bytes | None: ...


def enrolled_agent(caller: KeyedCaller) -> str | None:
    """Return the agent as which the caller's pod enrolled, or None if the key does not come from an
    enrolment."""
    return None if caller.digest is None else caller.tenant.enrolled_agent(caller.digest)


_MINUTE = 60_000_000
TRUSTED = 1 * _MINUTE
"""The microseconds for which a result from the store is cached. After that, an id that was
forgotten (`forget`) may have another owner."""
PAUSE_SECONDS = 0.02
_MOST = 16_384
"""The most cached results."""


class SidecarOwners:
    """Records which key uses which sidecar id, over all tenants."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], tuple[str, int]] = {}

    async def admits(self, caller: KeyedCaller, sidecar_id: str) -> bool:
        """Return whether the caller's key may use this sidecar id. If no other live key uses the
        id, it belongs to the caller from now on. Raise `WriteFault` if that can't be stored."""
        if not caller.key.may_speak_as_sidecar(sidecar_id):
            return False
        # A key whose patterns match also owns the id, if it can: a key without patterns must not
        # get it. If it can't, the patterns still say so.
        return await self._owns_or_claims(caller, sidecar_id) or caller.key.names_sidecars

    async def _owns_or_claims(self, caller: KeyedCaller, sidecar_id: str) -> bool:
        place, owner = (caller.tenant.tenant_id, sidecar_id), owner_of(caller)
        now, claimant = self._store.clock.now(), IdClaimant(owner, caller.key.agent_ids)
        known = self._known.get(place)
        if known is not None and known[1] > now - TRUSTED and known[0] == owner:
            return True
        present = await self._store.run_reading(
            caller.tenant.tenant_id, lambda connection: queries.owner_of(connection, *place)
        )
        # Most ids have their owner already, and then nothing is written.
        taken = present == owner or await self._store.run(
            self._store.lane(caller.tenant.tenant_id),
            lambda connection, _: queries.claim_sidecar_id(connection, *place, claimant, now),
        )
        if taken:
            self._known.pop(place, None)
            while len(self._known) >= _MOST:
                self._known.pop(next(iter(self._known)))
            self._known[place] = (owner, now)
        return taken

    async def forget(self, tenant_id: str) -> None:
        """Delete the owners of the ids of sidecars that have been silent for so long that they are
        no longer listed."""
        before = self._store.clock.now() - KEPT
        while True:
            forgotten = await self._store.run(
                self._store.lane(tenant_id),
                lambda connection, _: queries.forget(connection, tenant_id, before),
            )
            if forgotten < queries.FORGOTTEN_AT_ONCE:
                return
            await asyncio.sleep(PAUSE_SECONDS)


def owner_of(caller: KeyedCaller) -> str:
    """Return the name under which the caller owns its sidecars' ids: the key's id, or for an
    enrolled pod a name made from the agent's id."""
    agent_id = enrolled_agent(caller)
    return caller.key.key_id if agent_id is None else POD_OWNER_PREFIX + agent_id


RECORDS_PER_SECOND, RECORDS_AT_ONCE = 1 / 60, 5
"""The rate limit of recorded refusals, for each key. An entry says how many refusals were left out
since the one before."""
_log = logging.getLogger("sluice.isolation")


class ForeignAgent(Forbidden):
    """the key does not speak for this agent"""


class ForeignSidecar(Forbidden):
    """the key does not speak as this sidecar"""


class Isolation:
    """Refuses requests that name agents or sidecars of other keys. `new_id` makes the ids of log
    entries."""

    def __init__(
        self,
        owners: SidecarOwners,
        log: Log,
        metrics: HttpMetrics,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._owners, self._log, self._clock = owners, log, clock
        self._count, self._new_id = metrics.isolation_violations.labels, new_id
        self._records = Buckets(RECORDS_PER_SECOND, RECORDS_AT_ONCE)
        self._suppressed: dict[str, int] = {}

    async def require_agent(
        self, caller: KeyedCaller, agent_id: str | None, operation: str
    ) -> None:
        """Raise `ForeignAgent` if the caller's key may not speak for this agent. None stands for a
        request that names no agent."""
        if caller.key.may_speak_for_agent(agent_id):
            return
        await self.record(caller, Foreign.agent, agent_id, operation)
        named = "a call without an agent" if agent_id is None else f"agent `{agent_id}`"
        raise ForeignAgent(f"key `{caller.key.key_id}` does not speak for {named}")

    async def require_sidecar(self, caller: KeyedCaller, sidecar_id: str, operation: str) -> None:
        """Raise `ForeignSidecar` if the caller's key may not use this sidecar id, and `WriteFault`
        if that can't be determined."""
        if await self._owners.admits(caller, sidecar_id):
            return
        await self.record(caller, Foreign.sidecar, sidecar_id, operation)
        raise ForeignSidecar(
            f"key `{caller.key.key_id}` does not speak as sidecar `{sidecar_id}`: name it in the "
            "key's `sidecar_ids`, or revoke the key that uses the id"
        )

    async def record(
        self, caller: KeyedCaller, what: Foreign, name: str | None, operation: str
    ) -> None:
        """Count a refusal in the metrics, and record it in the tenant's log. `name` is the agent or
        sidecar that the caller named."""
        self._count(what).inc()
        key_id = caller.key.key_id
        place = f"{caller.tenant.tenant_id}/{key_id}"
        if self._records.wait(place, self._clock.monotonic()):
            self._suppressed[place] = self._suppressed.get(place, 0) + 1
            return
        suppressed = self._suppressed.pop(place, 0)
        detail = {"operation": operation, "what": what, "named": name, "suppressed": suppressed}
        record = change_record(VIOLATION, key_id, key_id, detail, record_id=self._new_id())
        _log.warning("key %s named a foreign %s at %s", key_id, what, operation)
        try:
            await self._log.append(caller.tenant.tenant_id, record)
        except SluiceError as error:
            # The caller is refused all the same. The metric and the line above still tell of it.
            _log.error("a refused key can't be recorded: %s", error.message)


_DAY = 86_400
MAX_PAUSE = 3600
"""The longest `Retry-After`, in seconds."""


class Spool(NamedTuple):
    """A spool that a sidecar delivers, identified by tenant, sidecar and instance, and the key that
    delivers it."""

    tenant_id: str
    key_id: str
    source: str
    instance: str


class TooManySpools(TooMany):
    """the key has begun as many spools as it may"""

    def __init__(self, per_day: int, seconds: float) -> None:
        self.headers = {"Retry-After": str(min(MAX_PAUSE, max(1, ceil(seconds))))}
        super().__init__(
            f"the key has begun as many spools as it may, {per_day} a day "
            "(`SLUICE_NEW_SPOOLS_PER_DAY`): give its sidecars a volume, or keys of their own"
        )


class SpoolStarts:
    """Limits how many spools a key may begin: `per_day` at once, and as many a day after that."""

    def __init__(self, store: Store, clock: Clock, per_day: int) -> None:
        self._store = store
        self._now = clock.monotonic
        self._per_day = per_day
        self._buckets = Buckets(per_day / _DAY, per_day)

    async def begins(self, spool: Spool, records: Sequence[Any]) -> bool:
        """Return whether this batch would begin the spool. Raise `TooManySpools` if the key may
        begin no more, and `ReadFault` if the database does not answer."""
        if not _is_first(records) or await self._exists(spool):
            return False
        if wait := self._buckets.due(spool[:2], self._now()):
            raise TooManySpools(self._per_day, wait)
        return True

    def begun(self, spool: Spool) -> None:
        """Count a spool that the key has begun."""
        self._buckets.wait(spool[:2], self._now())

    async def _exists(self, spool: Spool) -> bool:
        query = select(sources.c.n).where(
            of_tenant(sources, spool.tenant_id),
            sources.c.source == spool.source,
            sources.c.instance == spool.instance,
        )
        async with self._store.reading(spool.tenant_id) as connection:
            return (await connection.execute(query)).first() is not None


def _is_first(records: Sequence[Any]) -> bool:
    """Return whether a batch could begin a spool, because it starts with record 0."""
    try:
        return bool(records[0]["core"]["src"]["n"] == 0)
    except (LookupError, TypeError):
        return False
