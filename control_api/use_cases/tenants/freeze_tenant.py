"""Freezes a tenant, lifts the freeze, or shows it. During a freeze every evaluation is denied
(contract, section 6)."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.tenants import change_tenant, stored
from control_api.requests.base import EmptyRequest, RequestModel, Text
from control_api.responses.tenants import Freeze
from control_api.responses.times import time_or_none
from control_api.store.queries.tenants import StoredTenant


class NewFreeze(RequestModel):
    """The reason, shown to keys of scope `admin` and `read`. Agents do not see it, and the log does
    not contain it."""

    example: ClassVar[dict[str, Any]] = {"reason": "a leaked key reads contracts"}

    reason: Text


async def freeze_tenant(app: AppContext, caller: Caller, request: NewFreeze) -> Freeze:
    """Deny every evaluation of the tenant with `tenant_frozen` until the freeze is lifted, here and
    in every connected sidecar.

    Freezing a frozen tenant changes nothing: the time and reason of the first freeze stay.
    Management, audit and the delivery of records go on.
    """

    def frozen(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        # The first freeze stays: its time says when the denials began.
        if tenant.frozen_at is not None:
            return tenant, {}
        now = app.clock.now()
        return replace(tenant, frozen_at=now, freeze_reason=request.reason), {}

    tenant_id = caller.tenant_id
    return _shown(await change_tenant(app, tenant_id, "tenant.frozen", caller.by, frozen, _shown))


async def lift_freeze(app: AppContext, caller: Caller, _: EmptyRequest) -> Freeze:
    """Lift the tenant's freeze; without one, nothing changes."""

    def lifted(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        # The log then shows how long the freeze lasted.
        since = {"frozen_at": tenant.frozen_at}
        return replace(tenant, frozen_at=None, freeze_reason=None), since

    tenant_id = caller.tenant_id
    return _shown(await change_tenant(app, tenant_id, "tenant.unfrozen", caller.by, lifted, _shown))


async def show_freeze(app: AppContext, caller: Caller, _: EmptyRequest) -> Freeze:
    """Show whether the tenant is frozen, since when, and why."""
    tenant_id = caller.tenant_id
    async with app.store.reading(tenant_id) as connection:
        return _shown(await stored(connection, tenant_id))


def _shown(tenant: StoredTenant) -> Freeze:
    return Freeze(
        frozen=tenant.frozen_at is not None,
        reason=tenant.freeze_reason,
        frozen_at=time_or_none(tenant.frozen_at),
    )
