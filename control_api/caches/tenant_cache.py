"""The tenants that this process works with, and who owns which key. Knows no operation.

A change that this process commits is in force here before its answer leaves (`published`). One that
another process commits is found by `follow`, within half a second.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from control_api.caches.tenant_state import TenantState
from control_api.store.queries import documents, keys, tenants
from control_api.store.store import Store
from control_api.store.transaction import Published
from policies.ground.errors import NotFound, Unavailable

FOLLOW_SECONDS = 0.5
KEEP_TENANTS = 1024
KEEP_OWNERS = 65_536
_PAGE = 512
_PAGE_BYTES = 4 * 1024 * 1024


class TenantCache:
    """Loads a tenant when it is first asked for; the one loaded longest ago goes first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loaded: dict[str, TenantState] = {}
        self._owners: dict[bytes, str] = {}
        store.on_published(self._published)

    async def get(self, tenant_id: str) -> TenantState:
        """`NotFound` where there is no such tenant."""
        state = self._loaded.get(tenant_id)
        if state is not None:
            return state
        async with self._store.reading(tenant_id) as connection:
            row = await tenants.get(connection, tenant_id)
        if row is None:
            raise NotFound(f"no such tenant: `{tenant_id}`")
        state = TenantState(tenant_id, row.revision, row.active, partial(self._bodies, tenant_id))
        # Another request may have loaded it meanwhile; whoever waits there must be woken there.
        state = self._loaded.setdefault(tenant_id, state)
        self._make_room()
        return state

    def known_owner(self, digest: bytes) -> TenantState | None:
        """The same as `owner`, as far as this process knows."""
        tenant_id = self._owners.get(digest)
        return None if tenant_id is None else self._loaded.get(tenant_id)

    async def owner(self, digest: bytes) -> TenantState | None:
        """The tenant whose key has this SHA-256. A key never changes hands, so that is kept; that
        there is none is not, since it may be made the next moment by another process."""
        tenant_id = self._owners.get(digest)
        if tenant_id is None:
            async with self._store.reading_key(digest) as connection:
                tenant_id = await keys.tenant_of(connection, digest)
            if tenant_id is None:
                return None
            while len(self._owners) >= KEEP_OWNERS:
                self._owners.pop(next(iter(self._owners)))
            self._owners[digest] = tenant_id
        return await self.get(tenant_id)

    async def follow(self) -> None:
        """Look for what other processes committed, for ever. A store that does not answer is asked
        again: what is known stays in force meanwhile, as in a sidecar that is cut off."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self.look()
            except Unavailable:
                continue

    async def look(self) -> None:
        """Bring every loaded tenant to the store's revision."""
        states = list(self._loaded.values())
        if not states:
            return
        async with self._store.reading_all_tenants() as connection:
            found = await tenants.states(connection, [state.tenant_id for state in states])
        for state in states:
            revision, active = found.get(state.tenant_id, (0, False))
            state.active = active
            if revision > state.policy_set.revision:
                await self._catch_up(state, revision)

    def wake(self) -> None:
        """Let everyone who waits for a change answer: the service stops."""
        for state in self._loaded.values():
            state.wake()

    async def _catch_up(self, state: TenantState, revision: int) -> None:
        since = state.policy_set.revision
        async with self._store.reading(state.tenant_id) as connection:
            page = await documents.since(
                connection, state.tenant_id, since, limit=_PAGE, most_bytes=_PAGE_BYTES
            )
        if page.more:
            # So much has changed that forgetting all is cheaper than reading it.
            state.forget(page.revision)
        elif state.policy_set.revision == since:
            # Nothing was published here while we read: ours would be newer than what we read.
            state.published(max(revision, page.revision), {d.name: d.body for d in page.documents})

    async def _bodies(self, tenant_id: str, names: Sequence[str]) -> Mapping[str, bytes | None]:
        async with self._store.reading(tenant_id) as connection:
            return await tenants.bodies(connection, tenant_id, names)

    def _published(self, tenant_id: str, published: Published) -> None:
        state = self._loaded.get(tenant_id)
        if state is not None:
            state.published(published.revision, published.documents)

    def _make_room(self) -> None:
        """A tenant that a sidecar waits on stays: its waiter would never be woken."""
        spare = len(self._loaded) - KEEP_TENANTS
        if spare > 0:
            idle = [name for name, state in self._loaded.items() if not state.has_waiters]
            for name in idle[:spare]:
                del self._loaded[name]
