"""Changes a tenant's settings: they are in force in this process, and published to its sidecars,
before the response is sent."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.domain.tenants import change_tenant
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.tenants import TenantSettingsShown
from control_api.store.queries.tenants import StoredTenant


class NewSettings(RequestModel):
    """The settings to change. Settings left out keep their value."""

    example: ClassVar[dict[str, Any]] = {"require_agent_id": True}

    tenant_id: Identifier
    require_agent_id: bool = False
    pii_masking: bool = False


async def change_tenant_settings(
    app: AppContext, caller: Superadmin, request: NewSettings
) -> TenantSettingsShown:
    """Change a tenant's settings."""
    # Only the settings that were sent: the model's default must not replace the other's value.
    given = request.model_dump(include=request.model_fields_set - {"tenant_id"})

    def changed(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, **given), given

    tenant = await change_tenant(
        app, request.tenant_id, "tenant.settings", caller.by, changed, _shown
    )
    return _shown(tenant)


def _shown(tenant: StoredTenant) -> TenantSettingsShown:
    return TenantSettingsShown(tenant.tenant_id, tenant.require_agent_id, tenant.pii_masking)
