"""Refuses what a sidecar's key says of agents and sidecars that are not its own, and tells of it.

Each refusal is counted, and recorded in the tenant's log as `key.isolation_violation`: the alert
rule of that type reads those entries. Records are flood-limited, because the holder of a key can
try as fast as the service answers. Knows no route.
"""

import logging
from collections.abc import Callable

from control_api.enrolment.buckets import Buckets
from control_api.isolation.sidecar_owners import SidecarOwners
from control_api.isolation.speaker import Speaker
from control_api.log.append import Log
from control_api.metrics.labels import Foreign
from control_api.metrics.metrics import HttpMetrics
from control_api.store.queries.violations import VIOLATION
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, SluiceError
from policies.trail.change import change_record

RECORDS_PER_SECOND, RECORDS_AT_ONCE = 1 / 60, 5
"""For each key. An entry says how many came since the one before."""
_log = logging.getLogger("sluice.isolation")


class ForeignAgent(Forbidden):
    """the key does not speak for this agent"""


class ForeignSidecar(Forbidden):
    """the key does not speak as this sidecar"""


class Isolation:
    """`new_id` makes ids of log entries."""

    def __init__(
        self,
        owners: SidecarOwners,
        log: Log,
        metrics: HttpMetrics,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._owners = owners
        self._log = log
        self._count = metrics.isolation_violations.labels
        self._clock = clock
        self._new_id = new_id
        self._records = Buckets(RECORDS_PER_SECOND, RECORDS_AT_ONCE)
        self._suppressed: dict[str, int] = {}

    async def require_agent(self, caller: Speaker, agent_id: str | None, operation: str) -> None:
        """Raises `ForeignAgent` if the caller's key does not speak for this agent; None is what
        names no agent."""
        if caller.key.may_speak_for_agent(agent_id):
            return
        await self.record(caller, Foreign.agent, agent_id, operation)
        named = "a call without an agent" if agent_id is None else f"agent `{agent_id}`"
        raise ForeignAgent(f"key `{caller.key.key_id}` does not speak for {named}")

    async def require_sidecar(self, caller: Speaker, sidecar_id: str, operation: str) -> None:
        """Raises `ForeignSidecar` if the caller's key does not speak as this sidecar, and
        `WriteFault` if that can't be determined."""
        if await self._owners.admits(caller, sidecar_id):
            return
        await self.record(caller, Foreign.sidecar, sidecar_id, operation)
        raise ForeignSidecar(
            f"key `{caller.key.key_id}` does not speak as sidecar `{sidecar_id}`: name it in the "
            "key's `sidecar_ids`, or revoke the key that uses the id"
        )

    async def record(
        self, caller: Speaker, what: Foreign, name: str | None, operation: str
    ) -> None:
        """Count that the caller is refused for what it named, and log it."""
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
