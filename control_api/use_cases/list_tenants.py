"""List the tenants of the installation."""

from control_api.asked import Listed
from control_api.caller import Superadmin
from control_api.paging import Page, page_of
from control_api.service import Service
from control_api.store import tenants
from control_api.tenant_shapes import TenantShown
from control_api.use_cases.rendered import shown_tenant


class AskedTenants(Listed):
    """All of them."""


async def list_tenants(
    service: Service, _caller: Superadmin, asked: AskedTenants
) -> Page[TenantShown]:
    """List tenants, newest first."""
    async with service.store.reading_across() as connection:
        rows = await tenants.page(connection, asked.after(int, str), asked.limit + 1)
    return page_of(rows, asked.limit, lambda row: (row.created_at, row.tenant_id), shown_tenant)
