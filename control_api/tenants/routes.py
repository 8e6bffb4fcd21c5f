"""Lists the routes of tenants, and of the emergency freeze."""

from control_api.edge.route import ADMIN, READ, SUPERADMIN, Route
from control_api.tenants import operations

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/freeze", READ, operations.show_freeze),
    Route("POST", "/v1/freeze", ADMIN, operations.freeze_tenant),
    Route("DELETE", "/v1/freeze", ADMIN, operations.lift_freeze),
    Route("GET", "/v1/admin/tenants", SUPERADMIN, operations.list_tenants),
    Route("POST", "/v1/admin/tenants", SUPERADMIN, operations.create_tenant, 201, errors=(409,)),
    Route("GET", "/v1/admin/tenants/{tenant_id}", SUPERADMIN, operations.get_tenant),
    Route("DELETE", "/v1/admin/tenants/{tenant_id}", SUPERADMIN, operations.deactivate_tenant),
    Route(
        "POST", "/v1/admin/tenants/{tenant_id}/reactivate", SUPERADMIN, operations.reactivate_tenant
    ),
    Route(
        "PATCH",
        "/v1/admin/tenants/{tenant_id}/settings",
        SUPERADMIN,
        operations.change_tenant_settings,
    ),
)
