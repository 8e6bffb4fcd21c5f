"""Lists a tenant's sidecars, or waits until all of them have a revision."""

from typing import Any

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import ListRequest, QueryInt
from control_api.responses.paging import Page, page_of
from control_api.responses.sidecars import SidecarShown
from control_api.store.queries import fleet
from control_api.store.queries.fleet import StoredSidecar
from policies.ground.canonical import rfc3339

# A report to this process wakes a wait at once. One that another process received does not, so a
# wait also polls.
POLL_SECONDS = 0.1
"""The longest time between two reads of the store by a wait."""


class SidecarsRequest(ListRequest):
    """`wait_for` is a revision, for example from `X-Sluice-Revision`."""

    wait_for: QueryInt | None = Field(
        None, ge=0, lt=1 << 53, description="Wait until every live sidecar has this revision."
    )
    timeout: QueryInt = Field(10, ge=0, le=30, description="The most seconds to wait for that.")


async def list_sidecars(
    app: AppContext, caller: Caller, request: SidecarsRequest
) -> Page[SidecarShown]:
    """List sidecars, newest first; with `wait_for`, those that do not have its revision yet.

    With `wait_for` the response is sent once every live sidecar has the revision, and is an empty
    list, or after `timeout` seconds, and lists the live sidecars without it. A sidecar is live if
    it reported within the last 15 seconds.
    """
    if request.wait_for is not None:
        rows = await _wait(app, caller, request.wait_for, request.timeout)
        return Page([_shown(row, app.clock.now()) for row in rows])
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await fleet.page(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    now = app.clock.now()
    return page_of(
        rows,
        request.limit,
        lambda row: (row.first_seen, row.sidecar_id),
        lambda row: _shown(row, now),
    )


async def _wait(
    app: AppContext, caller: Caller, revision: int, seconds: int
) -> list[StoredSidecar]:
    tenant = caller.tenant
    until = app.clock.monotonic() + seconds
    while True:
        async with app.store.reading(tenant.tenant_id) as connection:
            rows = await fleet.behind(
                connection, tenant.tenant_id, app.epoch, revision, app.clock.now()
            )
        # A drain ends the wait like its timeout: the response lists the sidecars still behind.
        left = until - app.clock.monotonic()
        if not rows or left <= 0 or app.stopping.is_set():
            return rows
        await tenant.wait_report(min(left, POLL_SECONDS))


def _shown(row: StoredSidecar, now: int) -> SidecarShown:
    shown: dict[str, Any] = {name: getattr(row, name) for name in _COPIED_FIELDS}
    return SidecarShown(
        **shown,
        first_seen=rfc3339(row.first_seen),
        last_seen=rfc3339(row.last_seen),
        live=row.live(now),
        duplicate=row.duplicate(now),
        source_levels=bool(row.source_levels),
    )


_COPIED_FIELDS = (
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
    "workload",
    "enrolled_until",
    "forked",
)
