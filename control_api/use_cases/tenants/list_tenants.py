"""Lists the tenants of the installation."""

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.presenters import shown_tenant
from control_api.requests.base import ListRequest
from control_api.responses.paging import Page, page_of
from control_api.responses.tenants import TenantShown
from control_api.store.queries import tenants


async def list_tenants(
    app: AppContext, _caller: Superadmin, request: ListRequest
) -> Page[TenantShown]:
    """List tenants, newest first."""
    async with app.store.reading_all_tenants() as connection:
        rows = await tenants.page(connection, request.after(int, str), request.limit + 1)
    return page_of(rows, request.limit, lambda row: (row.created_at, row.tenant_id), shown_tenant)
