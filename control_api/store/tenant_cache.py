"""Caches the tenants that this process serves, and the tenant of each API key.

A change that this process commits is in force here before its answer is sent (`published`).
PostgreSQL sends a notice of changes that other processes commit (`noticed`); without a notice,
`follow` finds them within half a second.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from control_api.store.notices import Notice
from control_api.store.queries import documents, key_rows, tenant_rows
from control_api.store.queries.key_rows import EnrolledKey
from control_api.store.store import Store
from control_api.store.tenant_state import TenantState
from control_api.store.transaction import Published
from policies.ground.errors import NotFound, Unavailable

FOLLOW_SECONDS = 0.5
MAX_TENANTS = 1024
MAX_OWNERS = 65_536
_PAGE = 512
_PAGE_BYTES = 4 * 1024 * 1024


class TenantCache:
    """A cache of tenants' states. Loads a tenant when it is first needed, and evicts the one loaded
    first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loaded: dict[str, TenantState] = {}
        self._owners: dict[bytes, str] = {}
        self._missed = 0
        self._noticed: set[str] = set()
        self._notice = asyncio.Event()
        store.on_published(self.published)

    async def get(self, tenant_id: str) -> TenantState:
        """Return the tenant's state; load it if it is not cached. Raises `NotFound` if there is no
        such tenant."""
        state = self._loaded.get(tenant_id)
        if state is not None:
            return state
        while True:
            missed = self._missed
            # Read only the tenant's revision and status: documents load when they are needed.
            async with self._store.reading(tenant_id) as connection:
                row = await tenant_rows.get(connection, tenant_id)
            if row is None:
                raise NotFound(f"no such tenant: `{tenant_id}`")
            if missed == self._missed:
                break
            # A tenant that was not loaded yet has published during the read. If it was this one,
            # `row` may say that it is active, and the answer that it is deactivated has been sent.
        state = TenantState(
            tenant_id,
            row.revision,
            row.active,
            partial(self._bodies, tenant_id),
            partial(self._enrolled_key, tenant_id),
        )
        # Another request may have loaded it during the read. Keep that: sidecars may wait on it.
        state = self._loaded.setdefault(tenant_id, state)
        self._evict()
        return state

    def known_owner(self, digest: bytes) -> TenantState | None:
        """Return the tenant like `owner`, but from this process's memory alone; None if it is not
        cached."""
        tenant_id = self._owners.get(digest)
        return None if tenant_id is None else self._loaded.get(tenant_id)

    async def owner(self, digest: bytes) -> TenantState | None:
        """Return the tenant whose key has this SHA-256; None if there is no such key."""
        # Cached for good, since a key never moves to another tenant. The tenant's documents say
        # whether it is revoked.
        tenant_id = self._owners.get(digest)
        if tenant_id is None:
            async with self._store.reading_key(digest) as connection:
                tenant_id = await key_rows.tenant_of(connection, digest)
            if tenant_id is None:
                return None  # not cached: another process may create the key the next moment
            while len(self._owners) >= MAX_OWNERS:
                self._owners.pop(next(iter(self._owners)))
            self._owners[digest] = tenant_id
        return await self.get(tenant_id)

    async def revoked_key(self, tenant_id: str, digest: bytes) -> key_rows.NamedKey | None:
        """Return the tenant's revoked key with this SHA-256, from the store; None if there is
        none."""
        async with self._store.reading(tenant_id) as connection:
            return await key_rows.revoked(connection, tenant_id, digest)

    async def follow(self) -> None:
        """Read, in an endless loop, the changes that other processes commit. While the store is
        down, the cached state stays in force, as in a sidecar that is cut off."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self.refresh()
            except Unavailable:
                continue  # the next round reads the same changes

    def noticed(self, notice: Notice) -> None:
        """Have a revision read that another process published, according to a notice. Neither waits
        nor raises."""
        state = self._loaded.get(notice.tenant_id)
        # Of what is in force already, such as this process's own changes, there is nothing to read.
        # An older revision than that may mean that the database went back: `refresh` finds it.
        if state is not None and notice.revision > state.policy_set.revision:
            self._noticed.add(notice.tenant_id)
            self._notice.set()

    async def follow_notices(self) -> None:
        """Read, in an endless loop, the changes that notices announce. Notices that arrive during a
        read are handled together after it, so a storm of notices costs one read at a time."""
        while True:
            await self._notice.wait()
            self._notice.clear()
            noticed, self._noticed = self._noticed, set()
            for tenant_id in noticed:
                if (state := self._loaded.get(tenant_id)) is not None:
                    # Alone: `follow` reads what fails again, and treats a tenant that is gone.
                    with suppress(Unavailable, NotFound):
                        await self._catch_up(state)

    async def refresh(self) -> None:
        # A copy, because requests may load and evict tenants during the reads below.
        states = list(self._loaded.values())
        if not states:
            return
        changes = [state.changes for state in states]
        async with self._store.reading_all_tenants() as connection:
            found = await tenant_rows.states(connection, [state.tenant_id for state in states])
        for state, before in zip(states, changes, strict=True):
            # A tenant that is missing, as after a restore, is treated as deactivated.
            revision, active = found.get(state.tenant_id, (0, False))
            # What was published here during the read is newer than the read: it must not make a
            # deactivated tenant active again. The next round reads it.
            if state.changes != before:
                continue
            state.active = active
            if revision > state.policy_set.revision:
                await self._catch_up(state)
            elif revision < state.policy_set.revision:
                # The database was restored, or a standby took over that lacked the last commits.
                # Its next revisions are other ones than those that this process has seen.
                state.forget(revision)

    def wake(self) -> None:
        """Wake every request that waits for a change, because the service is stopping."""
        for state in self._loaded.values():
            state.wake()

    def published(self, tenant_id: str, published: Published) -> None:
        """Put published documents in force. The store calls this after a commit. Neither waits nor
        raises."""
        state = self._loaded.get(tenant_id)
        if state is None:
            self._missed += 1
            return
        if not published.since <= state.policy_set.revision <= published.revision:
            # INVARIANT: a state at a revision has every change up to it. Another process has
            # committed in between, and what it changed is not known here; or this process has read
            # a later revision already, and its documents must not be replaced by older ones.
            state.forget(published.since)
        state.published(published.revision, published.documents)

    async def _catch_up(self, state: TenantState) -> None:
        """Put newer changes from the store in force. Raises `NotFound` if the tenant is gone."""
        while True:
            since = state.policy_set.revision
            async with self._store.reading(state.tenant_id) as connection:
                page = await documents.since(
                    connection, state.tenant_id, since, limit=_PAGE, max_bytes=_PAGE_BYTES
                )
            # What was published here during the read is newer than this page, which may still know
            # of another process's later change: read again.
            if state.policy_set.revision == since:
                break
        if page.more:
            # So much has changed that dropping everything is cheaper than reading the changes.
            state.forget(page.revision)
        elif page.revision > since:
            state.published(page.revision, {d.name: d.body for d in page.documents})

    async def _bodies(self, tenant_id: str, names: Sequence[str]) -> Mapping[str, bytes | None]:
        async with self._store.reading(tenant_id) as connection:
            return await tenant_rows.bodies(connection, tenant_id, names)

    async def _enrolled_key(self, tenant_id: str, digest: bytes) -> EnrolledKey | None:
        async with self._store.reading(tenant_id) as connection:
            return await key_rows.find_enrolled(connection, tenant_id, digest)

    def _evict(self) -> None:
        """Drop the oldest tenants over the limit, but none that a sidecar's request waits on: that
        request would never be woken."""
        excess = len(self._loaded) - MAX_TENANTS
        if excess > 0:
            idle = [name for name, state in self._loaded.items() if not state.has_waiters]
            for name in idle[:excess]:
                del self._loaded[name]
