"""The command `purge`: runs the hourly purge now, whether or not the service is running.

Knows the order of a run and the operator's output; `log.purge` and `session_purge` do the work.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from control_api.checkpoint_store.location import open_store
from control_api.checkpoints.maker import CheckpointMaker
from control_api.log import log_key
from control_api.log.purge import Purge, PurgeResult
from control_api.log.purge_plan import PurgeMismatch
from control_api.maintenance.session_purge import purge_sessions
from control_api.settings import Settings
from control_api.store.queries import tenants
from control_api.store.startup import explain_startup_faults, opened_store
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
    ring = log_key.open_existing(settings.data_dir, settings.keys_dir)
    new_id = partial(_new_id, clock, entropy)
    async with opened_store(settings, clock, asyncio.Event()) as store:
        assert store is not None  # the stop event is never set
        async with explain_startup_faults(settings):
            await log_key.ensure_database_key(store, ring, settings.keys)
            chosen = await _tenants(store, tenant_id)
        notes = open_store(settings.checkpoint_store)
        run = Purge(store, ring, CheckpointMaker(store, ring, notes), new_id)
        # A list, so that `all` does not stop at a failure: a log that does not verify must not keep
        # the data of other tenants.
        return all([await _purge_tenant(store, run, each, new_id, report) for each in chosen])


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
    store: Store,
    run: Purge,
    tenant_id: str,
    new_id: Callable[[], str],
    report: Callable[[str], None],
) -> bool:
    try:
        ended = await purge_sessions(store, tenant_id, new_id)
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
