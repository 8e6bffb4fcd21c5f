"""Deactivates and reactivates a tenant. While it is inactive, its keys are refused and its sidecars
deny everything; its data remains."""

from dataclasses import replace
from typing import Any

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.domain.tenants import change_tenant
from control_api.presenters import shown_tenant
from control_api.requests.tenant import TenantRequest
from control_api.responses.audit import Empty
from control_api.responses.tenants import TenantShown
from control_api.store.queries.tenants import StoredTenant


async def deactivate_tenant(app: AppContext, caller: Superadmin, request: TenantRequest) -> Empty:
    """Deactivate a tenant; its keys stop working until it is reactivated."""

    def off(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, active=False), {}

    await change_tenant(app, request.tenant_id, "tenant.deactivated", caller.by, off, shown_tenant)
    return Empty()


async def reactivate_tenant(
    app: AppContext, caller: Superadmin, request: TenantRequest
) -> TenantShown:
    """Reactivate a tenant; its keys work again."""

    def on(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, active=True), {}

    tenant = await change_tenant(
        app, request.tenant_id, "tenant.reactivated", caller.by, on, shown_tenant
    )
    return shown_tenant(tenant)
