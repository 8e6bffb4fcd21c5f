"""Runs the hourly purge of expired data, one tenant after another. Knows no table and no proof:
`log.purge` and `session_purge` do the work.
"""

import asyncio
import logging
from collections.abc import Callable

from control_api.alerts.cleanup import delete_old_deliveries
from control_api.app_context import AppContext
from control_api.auth.console_session import forget_ended_sessions
from control_api.domain.impact_retention import forget_ended_runs
from control_api.log.purge import Purge
from control_api.log.purge_plan import PurgeMismatch
from control_api.maintenance.enrolled_key_purge import forget_expired_keys
from control_api.maintenance.session_purge import purge_sessions
from control_api.metrics.labels import Purging
from control_api.store.queries import tenants
from control_api.store.schema.console import SUPERADMIN_REALM
from policies.ground.errors import SluiceError

FIRST_SECONDS = 300.0
INTERVAL_SECONDS = 3600.0
JITTER = 0.2
"""A fraction of the interval, so that replicas that started together don't purge together."""
_log = logging.getLogger("sluice.retention")


class RetentionLoop:
    """The hourly purge of every tenant."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._purge = Purge(app.store, app.ring, app.checkpoints, app.new_id)

    async def run(self) -> None:
        """Runs as long as the app."""
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait * jitter(self._app.entropy))
            await self.once()
            wait = INTERVAL_SECONDS

    async def once(self) -> None:
        """Purge every tenant. A failure is logged, counted, and retried in the next hour."""
        try:
            async with self._app.store.reading_all_tenants() as connection:
                tenant_ids = await tenants.ids(connection)
            await forget_ended_sessions(self._app, SUPERADMIN_REALM)
        except SluiceError as error:
            self._failed(Purging.failed, "all tenants", error)
            return
        for tenant_id in tenant_ids:
            await self._purge_tenant(tenant_id)

    async def _purge_tenant(self, tenant_id: str) -> None:
        app = self._app
        try:
            # The log comes last, because only its purge can be refused: if it does not verify, the
            # other expired data is gone already.
            await delete_old_deliveries(app.store, tenant_id)
            await app.fleet.forget(tenant_id)
            await app.sidecar_owners.forget(tenant_id)
            await forget_expired_keys(app.store, tenant_id)
            await forget_ended_runs(app.store, tenant_id)
            await forget_ended_sessions(app, tenant_id)
            sessions = await purge_sessions(app.store, tenant_id, app.new_id)
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
            app.instruments.jobs.purges.labels(Purging.purged if removed else Purging.nothing).inc()
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
        self._app.instruments.jobs.purges.labels(outcome).inc()
        _log.error("purge of `%s` %s: %s", tenant_id, outcome, error, exc_info=trace)


def jitter(entropy: Callable[[int], bytes]) -> float:
    """A random factor between 1 - `JITTER` and 1 + `JITTER`."""
    return 1 + JITTER * (int.from_bytes(entropy(2), "big") / 0x8000 - 1)
