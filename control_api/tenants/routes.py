"""The routes of tenants, and of the emergency freeze."""

from control_api.edge.route import ADMIN, READ, SUPERADMIN, Route
from control_api.tenants.operations import (
    change_tenant_settings,
    create_tenant,
    deactivate_tenant,
    freeze_tenant,
    get_tenant,
    lift_freeze,
    list_tenants,
    reactivate_tenant,
    show_freeze,
)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/freeze", READ, show_freeze),
    Route("POST", "/v1/freeze", ADMIN, freeze_tenant),
    Route("DELETE", "/v1/freeze", ADMIN, lift_freeze),
    Route("GET", "/v1/admin/tenants", SUPERADMIN, list_tenants),
    Route("POST", "/v1/admin/tenants", SUPERADMIN, create_tenant, 201, errors=(409,)),
    Route("GET", "/v1/admin/tenants/{tenant_id}", SUPERADMIN, get_tenant),
    Route("DELETE", "/v1/admin/tenants/{tenant_id}", SUPERADMIN, deactivate_tenant),
    Route("POST", "/v1/admin/tenants/{tenant_id}/reactivate", SUPERADMIN, reactivate_tenant),
    Route("PATCH", "/v1/admin/tenants/{tenant_id}/settings", SUPERADMIN, change_tenant_settings),
)
