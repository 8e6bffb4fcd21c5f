"""Change what holds for a tenant; in force, here and in its sidecars, when the answer leaves."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.tenants import TenantSettingsShown
from control_api.store.queries.tenants import StoredTenant
from control_api.tenants.tenant_change import change_tenant


class NewSettings(RequestModel):
    """The settings to change; those left out stay."""

    example: ClassVar[dict[str, Any]] = {"require_agent_id": True}

    tenant_id: Identifier
    require_agent_id: bool = False
    pii_masking: bool = False


async def change_tenant_settings(
    service: AppContext, caller: Superadmin, asked: NewSettings
) -> TenantSettingsShown:
    """Change a tenant's settings."""
    given = asked.model_dump(include=asked.model_fields_set - {"tenant_id"})

    def changed(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, **given), given

    tenant = await change_tenant(service, asked.tenant_id, "tenant.settings", caller.by, changed)
    return TenantSettingsShown(tenant.tenant_id, tenant.require_agent_id, tenant.pii_masking)
