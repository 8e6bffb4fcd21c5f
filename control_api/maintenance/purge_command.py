"""`purge`: does the hourly purge now, whether or not the service is running.

Knows the order of a run and the operator's output; `log.purge` and `session_purge` do the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from control_api.log import log_key
from control_api.log.purge import Purge, PurgeResult
from control_api.log.purge_plan import PurgeMismatch
from control_api.maintenance.session_purge import purge_sessions
from control_api.settings import Settings
from control_api.store.queries import tenants
from control_api.store.startup import explain_startup_faults, open_with_retry
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.ground.clock import Clock
from policies.ground.errors import NotFound, SluiceError
from policies.ground.ids import uuid7


async def purge(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tenant_id: str | None,
    report: Callable[[str], None],
) -> bool:
    """Purge one tenant, or all of them (None); True if none failed. Raises `NotFound` for an
    unknown tenant."""
    # The service's own key: this log can't be verified with a checkpoint that another key signed.
    ring = log_key.open_existing(settings.data_dir)
    store: Store | None = None
    try:
        async with asyncio.TaskGroup() as group:
            store = await open_with_retry(
                partial(Store.open, settings.database_url, clock, group, settings.database),
                settings.database_setting,
                settings.start_seconds,
                clock.monotonic,
                asyncio.Event(),
            )
            assert store is not None  # the stop event is never set
            new_id = partial(_new_id, clock, entropy)
            async with explain_startup_faults(settings.database_url, settings.database_setting):
                await log_key.ensure_database_key(store, ring, settings.data_dir)
                chosen = await _tenants(store, tenant_id)
            run = Purge(store, ring, new_id)
            done = []
            for each in chosen:
                sessions = partial(purge_sessions, store, each, new_id)
                done.append(await _purge_tenant(run, sessions, each, report))
    finally:
        # Only after the task group has ended: then no write is under way.
        if store is not None:
            await store.close()
    return all(done)


async def _tenants(store: Store, tenant_id: str | None) -> Sequence[str]:
    async with store.reading_all_tenants() as connection:
        all_ids = await tenants.ids(connection)
    if tenant_id is None:
        return all_ids
    if tenant_id not in all_ids:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return [tenant_id]


def _new_id(clock: Clock, entropy: Callable[[int], bytes]) -> str:
    return uuid7(clock.now(), entropy(10))


async def _purge_tenant(
    run: Purge,
    sessions: Callable[[], Awaitable[int]],
    tenant_id: str,
    report: Callable[[str], None],
) -> bool:
    try:
        ended = await sessions()
        outcome = await run.run(tenant_id)
    except (PurgeMismatch, SluiceError) as error:
        report(f"{tenant_id}: not purged: {error}")
        return False
    report(f"{tenant_id}: {_summary(outcome, ended)}")
    return True


def _summary(outcome: PurgeResult, ended: int) -> str:
    removed = f"{outcome.removed} entries and {ended} sessions removed"
    if outcome.anchor is None:
        return f"{removed}; nothing was ever purged"
    purged = outcome.anchor.purged
    return (
        f"{removed}; anchor: {purged.size} entries until {rfc3339(purged.cutoff)}, "
        f"root {purged.root.hex()}"
    )
