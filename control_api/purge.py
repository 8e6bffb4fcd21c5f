"""Purges expired data, one tenant after another: every hour in the service, or once by the command
`purge`."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import Counter

from control_api.alerts.deliver import delete_old_deliveries
from control_api.checkpoint_store.location import open_store
from control_api.fleet.isolation import SidecarOwners
from control_api.jitter import jitter
from control_api.log import log_key
from control_api.log.append import Changes
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.log.purge import Purge, PurgeResult
from control_api.log.purge_plan import PurgeMismatch
from control_api.metrics.labels import Purging
from control_api.policy.impact_counts import forget_ended_runs
from control_api.registry.key_expiry import forget_expired_keys
from control_api.sessions.ending import purge_sessions
from control_api.settings import Settings
from control_api.signin.console_session import SigningIn, forget_ended_sessions
from control_api.store.opening import command_store, explain_startup_faults
from control_api.store.queries import tenant_rows
from control_api.store.queries.sidecar_rows import FleetReports
from control_api.store.schema.features import SUPERADMIN_REALM
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.ground.signing import KeyRing

FIRST_SECONDS = 300.0
INTERVAL_SECONDS = 3600.0
_log = logging.getLogger("sluice.retention")


class PurgeParts(NamedTuple):
    """The objects that the hourly purge works with. `entropy(n)` returns n random bytes; `purges`
    counts purges by outcome."""

    store: Store
    ring: KeyRing
    checkpoints: CheckpointMaker
    reports: FleetReports
    owners: SidecarOwners
    signin: SigningIn
    entropy: Callable[[int], bytes]
    new_id: Callable[[], str]
    purges: Counter


class RetentionLoop:
    """Purges the expired data of every tenant each hour."""

    def __init__(self, parts: PurgeParts) -> None:
        self._parts = parts
        self._purge = Purge(parts.store, parts.ring, parts.checkpoints, parts.new_id)

    async def run(self) -> None:
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait * jitter(self._parts.entropy))
            await self.once()
            wait = INTERVAL_SECONDS

    async def once(self) -> None:
        """Purge every tenant once. A failure is logged, counted, and retried in the next hour."""
        try:
            async with self._parts.store.reading_all_tenants() as connection:
                tenant_ids = await tenant_rows.ids(connection)
            await forget_ended_sessions(self._parts.signin, SUPERADMIN_REALM)
        except SluiceError as error:
            self._failed(Purging.failed, "all tenants", error)
            return
        for tenant_id in tenant_ids:
            await self._purge_tenant(tenant_id)

    async def _purge_tenant(self, tenant_id: str) -> None:
        parts = self._parts
        try:
            # The log comes last, because only its purge can be refused: if it does not verify, the
            # other expired data is gone already.
            await delete_old_deliveries(parts.store, tenant_id)
            await parts.reports.forget(tenant_id)
            await parts.owners.forget(tenant_id)
            await forget_expired_keys(parts.store, tenant_id)
            await forget_ended_runs(parts.store, tenant_id)
            await forget_ended_sessions(parts.signin, tenant_id)
            sessions = await purge_sessions(parts.store, tenant_id, parts.new_id)
            outcome = await self._purge.run(tenant_id)
        except PurgeMismatch as error:
            # The log was tampered with. Keep all of it for an operator to investigate.
            self._failed(Purging.refused, tenant_id, error)
        except SluiceError as error:
            self._failed(Purging.failed, tenant_id, error)
        except Exception as error:  # noqa: BLE001  one tenant's fault must not stop the others
            self._failed(Purging.failed, tenant_id, error, trace=True)
        else:
            removed = outcome.removed or sessions
            parts.purges.labels(Purging.purged if removed else Purging.nothing).inc()
            if removed:
                _log.info(
                    "tenant `%s`: %d entries and %d sessions purged",
                    tenant_id,
                    outcome.removed,
                    sessions,
                )

    def _failed(
        self, outcome: Purging, tenant_id: str, error: Exception, *, trace: bool = False
    ) -> None:
        self._parts.purges.labels(outcome).inc()
        _log.error("purge of `%s` %s: %s", tenant_id, outcome, error, exc_info=trace)


async def purge(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    tenant_id: str | None,
    report: Callable[[str], None],
) -> bool:
    """Purge one tenant, or all of them if `tenant_id` is None. Return True if none failed. Raise
    `NotFound` if the tenant is unknown."""
    # The service's own key: this log can't be verified with a checkpoint that another key signed.
    ring = log_key.open_existing(settings.data_dir, settings.keys_dir)
    new_id = Changes(clock, entropy).new_id
    async with command_store(settings, clock) as store:
        async with explain_startup_faults(settings):
            await log_key.ensure_database_key(store, ring, settings.keys)
            async with store.reading_all_tenants() as connection:
                chosen = await tenant_rows.chosen(connection, tenant_id)
        notes = open_store(settings.checkpoint_store)
        run = Purge(store, ring, CheckpointMaker(store, ring, notes), new_id)
        # A list, so that `all` does not stop at a failure: a log that does not verify must not keep
        # the data of other tenants.
        return all([await _purge_tenant(store, run, each, new_id, report) for each in chosen])


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
