"""Switch a tenant off, or on again: its keys and its sidecars stop, its data stays."""

from dataclasses import replace
from typing import Any

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.presenters import shown_tenant
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.audit import Empty
from control_api.responses.tenants import TenantShown
from control_api.store.queries.tenants import StoredTenant
from control_api.tenants.tenant_change import change_tenant


class AskedTenant(RequestModel):
    """Which tenant."""

    tenant_id: Identifier


async def deactivate_tenant(service: AppContext, caller: Superadmin, asked: AskedTenant) -> Empty:
    """Deactivate a tenant: none of its keys opens anything until it is reactivated."""

    def off(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, active=False), {}

    await change_tenant(service, asked.tenant_id, "tenant.deactivated", caller.by, off)
    return Empty()


async def reactivate_tenant(
    service: AppContext, caller: Superadmin, asked: AskedTenant
) -> TenantShown:
    """Reactivate a tenant: its keys open again what they opened."""

    def on(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, active=True), {}

    tenant = await change_tenant(service, asked.tenant_id, "tenant.reactivated", caller.by, on)
    return shown_tenant(tenant)
