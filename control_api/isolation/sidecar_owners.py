"""Says as which sidecars a caller's key may speak, and keeps which key uses which id.

    the key has `sidecar_ids`     those that its patterns match
    it has none                   every id that no other live key uses

An id belongs to the first key that uses it, until that key is revoked or expires, or a key for the
same agents takes its place. So the replicas that share a key, and the pods of an agent, may all
have ids of their own, a sidecar goes on with a new key, and no key takes the id of another agent's.
Knows no route.
"""

import asyncio

from control_api.isolation.speaker import Speaker, enrolled_agent
from control_api.store.queries import sidecar_owners
from control_api.store.queries.fleet import KEPT
from control_api.store.queries.sidecar_owners import OF_PODS, Taker
from control_api.store.store import Store

_MINUTE = 60_000_000
TRUSTED = 1 * _MINUTE
"""Microseconds for which an answer of the store is taken as true: an id that was forgotten
(`forget`) may have another owner after that."""
PAUSE_SECONDS = 0.02
_MOST = 16_384
"""Answers that are kept in memory."""


class SidecarOwners:
    """Which key uses which id, over all tenants."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], tuple[str, int]] = {}

    async def admits(self, caller: Speaker, sidecar_id: str) -> bool:
        """Whether the caller's key may speak as this sidecar. If no other live key uses the id, it
        is the caller's from now on. Raises `WriteFault` if that can't be stored."""
        if not caller.key.may_speak_as_sidecar(sidecar_id):
            return False
        # A key whose patterns match also owns the id, if it can: a key without patterns must not
        # get it. If it can't, the patterns still say so.
        return await self._takes(caller, sidecar_id) or caller.key.names_sidecars

    async def _takes(self, caller: Speaker, sidecar_id: str) -> bool:
        place, owner, now = (
            (caller.tenant.tenant_id, sidecar_id),
            owner_of(caller),
            self._store.clock.now(),
        )
        taker = Taker(owner, caller.key.agent_ids)
        known = self._known.get(place)
        if known is not None and known[1] > now - TRUSTED and known[0] == owner:
            return True
        present = await self._store.run_reading(
            caller.tenant.tenant_id, lambda connection: sidecar_owners.owner_of(connection, *place)
        )
        # Most ids have their owner already, and then nothing is written.
        taken = present == owner or await self._store.run(
            self._store.lane(caller.tenant.tenant_id),
            lambda connection, _: sidecar_owners.take(connection, *place, taker, now),
        )
        if taken:
            self._remember(place, owner, now)
        return taken

    def _remember(self, place: tuple[str, str], owner: str, now: int) -> None:
        self._known.pop(place, None)
        while len(self._known) >= _MOST:
            self._known.pop(next(iter(self._known)))
        self._known[place] = (owner, now)

    async def forget(self, tenant_id: str) -> None:
        """Forget ids of sidecars that have been silent for so long that they are not listed."""
        before = self._store.clock.now() - KEPT
        while True:
            forgotten = await self._store.run(
                self._store.lane(tenant_id),
                lambda connection, _: sidecar_owners.forget(connection, tenant_id, before),
            )
            if forgotten < sidecar_owners.FORGOTTEN_AT_ONCE:
                return
            await asyncio.sleep(PAUSE_SECONDS)


def owner_of(caller: Speaker) -> str:
    """Under which name the ids of the caller's sidecars are kept."""
    agent_id = enrolled_agent(caller)
    return caller.key.key_id if agent_id is None else OF_PODS + agent_id
