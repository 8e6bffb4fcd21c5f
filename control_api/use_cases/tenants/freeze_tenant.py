"""Freeze a tenant, or lift the freeze: while it lasts, every evaluation is denied (contract,
section 6).

The freeze is part of the tenant's document, so it reaches replicas and sidecars the way a
revocation does, and survives restarts of either.
"""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import time_or_none
from control_api.requests.base import EmptyRequest, RequestModel, Text
from control_api.responses.tenants import Freeze
from control_api.store.queries.tenants import StoredTenant
from control_api.tenants.tenant_change import change_tenant, stored


class NewFreeze(RequestModel):
    """Why everything is to stop. The reason is shown to administrators and readers; agents do not
    hear it, and the log does not hold it."""

    example: ClassVar[dict[str, Any]] = {"reason": "a leaked key reads contracts"}

    reason: Text


async def freeze_tenant(service: AppContext, caller: Caller, asked: NewFreeze) -> Freeze:
    """Deny every evaluation of the tenant with `tenant_frozen` until the freeze is lifted, here and
    in every connected sidecar.

    Freezing again changes nothing: time and reason stay those of the freeze in force. Management,
    audit and delivery of records go on.
    """

    def frozen(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        if tenant.frozen_at is not None:
            return tenant, {}
        now = service.clock.now()
        return replace(tenant, frozen_at=now, freeze_reason=asked.reason), {}

    tenant_id = caller.tenant.tenant_id
    return _shown(await change_tenant(service, tenant_id, "tenant.frozen", caller.by, frozen))


async def lift_freeze(service: AppContext, caller: Caller, _: EmptyRequest) -> Freeze:
    """Lift the tenant's freeze. Without a freeze nothing changes."""

    def lifted(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        since = {"frozen_at": tenant.frozen_at}
        return replace(tenant, frozen_at=None, freeze_reason=None), since

    tenant_id = caller.tenant.tenant_id
    return _shown(await change_tenant(service, tenant_id, "tenant.unfrozen", caller.by, lifted))


async def show_freeze(service: AppContext, caller: Caller, _: EmptyRequest) -> Freeze:
    """Show whether the tenant is frozen, since when and why."""
    tenant_id = caller.tenant.tenant_id
    async with service.store.reading(tenant_id) as connection:
        return _shown(await stored(connection, tenant_id))


def _shown(tenant: StoredTenant) -> Freeze:
    return Freeze(
        frozen=tenant.frozen_at is not None,
        reason=tenant.freeze_reason,
        frozen_at=time_or_none(tenant.frozen_at),
    )
