"""When what is too old goes: every hour, one tenant after the other. Knows no table and no proof;
`log.purge` and `session_purge` remove.
"""

import asyncio
import logging
from collections.abc import Callable

from control_api.alerts.cleanup import forget_deliveries
from control_api.app_context import AppContext
from control_api.log.purge import Purge
from control_api.log.purge_plan import PurgeMismatch
from control_api.maintenance.session_purge import purge_sessions
from control_api.metrics.metrics import Purging
from control_api.store.queries import tenants
from policies.ground.errors import SluiceError

FIRST_SECONDS = 300.0
EVERY_SECONDS = 3600.0
JITTER = 0.2
"""Of the time between two runs: replicas that started together don't run together."""
_log = logging.getLogger("sluice.retention")


class RetentionLoop:
    """The hourly purge of every tenant."""

    def __init__(self, service: AppContext) -> None:
        self._service = service
        self._purge = Purge(service.store, service.ring, service.new_id)

    async def run(self) -> None:
        """For as long as the service."""
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait * jitter(self._service.entropy))
            await self.once()
            wait = EVERY_SECONDS

    async def once(self) -> None:
        """Every tenant's turn; what fails for one is told, counted, and left to the next hour."""
        try:
            async with self._service.store.reading_all_tenants() as connection:
                everyone = await tenants.ids(connection)
        except SluiceError as error:
            self._tell(Purging.failed, "no tenant", error)
            return
        for tenant_id in everyone:
            await self._turn(tenant_id)

    async def _turn(self, tenant_id: str) -> None:
        service = self._service
        try:
            await forget_deliveries(service.store, tenant_id)
            await service.fleet.forget(tenant_id)
            sessions = await purge_sessions(service.store, tenant_id, service.new_id)
            outcome = await self._purge.run(tenant_id)
        except PurgeMismatch as error:
            # Someone has changed the log. Nothing more of it goes until an operator has looked.
            self._tell(Purging.refused, tenant_id, error)
        except SluiceError as error:
            self._tell(Purging.failed, tenant_id, error)
        except Exception as error:  # noqa: BLE001  one tenant must not hold up the others
            self._tell(Purging.failed, tenant_id, error, trace=True)
        else:
            some = outcome.removed or sessions
            service.instruments.purges.labels(Purging.purged if some else Purging.nothing).inc()
            if some:
                said = "tenant `%s`: %d entries and %d sessions purged"
                _log.info(said, tenant_id, outcome.removed, sessions)

    def _tell(
        self, outcome: Purging, tenant_id: str, error: Exception, *, trace: bool = False
    ) -> None:
        self._service.instruments.purges.labels(outcome).inc()
        _log.error("purge of `%s` %s: %s", tenant_id, outcome, error, exc_info=trace)


def jitter(entropy: Callable[[int], bytes]) -> float:
    """A factor of `JITTER` around 1."""
    return 1 + JITTER * (int.from_bytes(entropy(2), "big") / 0x8000 - 1)
