"""List a tenant's sidecars, or wait until all of them decide by a revision."""

from typing import Any

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Listed, QueryInt
from control_api.responses.paging import Page, page_of
from control_api.responses.sidecars import SidecarShown
from control_api.store.queries import fleet
from control_api.store.queries.fleet import StoredSidecar
from policies.ground.canonical import rfc3339

LOOK_SECONDS = 0.1
"""How often the store is asked while one waits: a report may have come to another process."""


class AskedSidecars(Listed):
    """`wait_for` is a revision, as `X-Sluice-Revision` told it."""

    wait_for: QueryInt | None = Field(
        None, ge=0, lt=1 << 53, description="Wait until every live sidecar has this revision."
    )
    timeout: QueryInt = Field(10, ge=0, le=30, description="The most seconds to wait for that.")


async def list_sidecars(
    service: AppContext, caller: Caller, asked: AskedSidecars
) -> Page[SidecarShown]:
    """List sidecars, newest first; with `wait_for`, those that have not its revision yet.

    With `wait_for` the answer comes once every live sidecar has the revision, and is empty, or
    after `timeout` seconds, and names the live ones that have not. A sidecar is live that reported
    within 15 seconds.
    """
    if asked.wait_for is not None:
        rows = await _wait(service, caller, asked.wait_for, asked.timeout)
        return Page([_shown(row, service.clock.now()) for row in rows])
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        rows = await fleet.page(
            connection, caller.tenant.tenant_id, asked.after(int, str), asked.limit + 1
        )
    now = service.clock.now()
    return page_of(
        rows,
        asked.limit,
        lambda row: (row.first_seen, row.sidecar_id),
        lambda row: _shown(row, now),
    )


async def _wait(
    service: AppContext, caller: Caller, revision: int, seconds: int
) -> list[StoredSidecar]:
    tenant = caller.tenant
    until = service.clock.monotonic() + seconds
    while True:
        async with service.store.reading(tenant.tenant_id) as connection:
            rows = await fleet.behind(
                connection, tenant.tenant_id, service.epoch, revision, service.clock.now()
            )
        left = until - service.clock.monotonic()
        if not rows or left <= 0 or service.stopping.is_set():
            return rows
        await tenant.wait_report(min(left, LOOK_SECONDS))


def _shown(row: StoredSidecar, now: int) -> SidecarShown:
    shown: dict[str, Any] = {name: getattr(row, name) for name in _SAME}
    return SidecarShown(
        **shown,
        first_seen=rfc3339(row.first_seen),
        last_seen=rfc3339(row.last_seen),
        live=row.live(now),
        duplicate=row.duplicate(now),
    )


_SAME = (
    "sidecar_id",
    "version",
    "agent_id",
    "agent_role",
    "epoch",
    "revision",
    "policy_set_age_ms",
    "spool_depth",
    "oldest_unshipped_ms",
    "refusing",
)
