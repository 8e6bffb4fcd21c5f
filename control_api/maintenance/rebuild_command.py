"""The command `rebuild-lists`: makes anew what lists and counts read, from the log, whether or not
the service is running.

Knows the operator's output; `log.rebuild` does the work.
"""

import asyncio
from collections.abc import Callable, Sequence

from control_api.log.counts.recount import EntriesMoved, Uncountable
from control_api.log.rebuild.rebuild import Rebuilt, rebuild
from control_api.settings import Settings
from control_api.store.queries import tenants
from control_api.store.startup import explain_startup_faults, opened_store
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import NotFound, SluiceError
from policies.ground.ids import uuid7


async def rebuild_lists(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tenant_id: str | None,
    report: Callable[[str], None],
) -> bool:
    """Rebuild one tenant's, or those of all (None); True if all could be rebuilt. Raises `NotFound`
    for an unknown tenant."""

    def new_id() -> str:
        return uuid7(clock.now(), entropy(10))

    async with opened_store(settings, clock, asyncio.Event()) as store:
        assert store is not None  # the stop event is never set
        async with explain_startup_faults(settings):
            chosen = await _tenants(store, tenant_id)
        # A list, so that `all` does not stop at a failure.
        return all([await _rebuild(store, each, new_id, report) for each in chosen])


async def _tenants(store: Store, tenant_id: str | None) -> Sequence[str]:
    async with store.reading_all_tenants() as connection:
        all_ids = await tenants.ids(connection)
    if tenant_id is None:
        return all_ids
    if tenant_id not in all_ids:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return [tenant_id]


async def _rebuild(
    store: Store, tenant_id: str, new_id: Callable[[], str], report: Callable[[str], None]
) -> bool:
    try:
        done = await rebuild(store, tenant_id, new_id, report)
    except EntriesMoved:
        report(f"{tenant_id}: the counts were not rebuilt, since a purge goes on: run this again")
    except Uncountable as error:
        report(f"{tenant_id}: entry {error.seq} can't be read, so the counts were not rebuilt")
    except SluiceError as error:
        report(f"{tenant_id}: not rebuilt: {error}")
    else:
        report(f"{tenant_id}: {_summary(done)}")
        return not done.damaged
    return False


def _summary(done: Rebuilt) -> str:
    changed = f"{done.rows} rows, {done.spans} blocks of times and {done.counts} counts changed"
    if done.seq is not None:
        changed += f", recorded by entry {done.seq}"
    if done.damaged:
        changed += f"; {done.damaged} entries don't verify, and they and all counts were left"
    return changed
