"""Shows one tenant."""

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.domain.tenants import stored
from control_api.presenters import shown_tenant
from control_api.requests.tenant import TenantRequest
from control_api.responses.tenants import TenantShown


async def get_tenant(app: AppContext, _caller: Superadmin, request: TenantRequest) -> TenantShown:
    """Show a tenant."""
    async with app.store.reading(request.tenant_id) as connection:
        return shown_tenant(await stored(connection, request.tenant_id))
