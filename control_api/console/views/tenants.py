"""Shows the superadmin's pages of tenants: list, create, settings, keys, deactivate, reactivate.

The secret of a tenant's key is shown in the answer to the form that creates it, and nowhere else. A
page that is loaded again creates nothing: a tenant's name is unique, and the form of a key carries
a random text (`Idempotency-Key`).
"""

from control_api.console.page import HtmlPage, PageRedirect, Visit, address, get, post
from control_api.console.views.keys import key_fields, new_idempotency_key
from control_api.edge.requests import Repeated
from control_api.registry.key_operations import provision_key
from control_api.registry.models import DEFAULT_DAYS
from control_api.tenants.operations import (
    change_tenant_settings,
    create_tenant,
    deactivate_tenant,
    get_tenant,
    list_tenants,
    reactivate_tenant,
)
from policies.ground.errors import SluiceError, invalid

DONE = {
    "settings": "The settings are in force.",
    "deactivated": "The tenant is deactivated: its keys have stopped working.",
    "reactivated": "The tenant is active again: its keys work.",
}
SETTINGS = ("require_agent_id", "pii_masking")


async def show_tenants(visit: Visit) -> HtmlPage:
    page = await visit.call(list_tenants, limit="50", **visit.filled("cursor"))
    return HtmlPage("tenants/list.html", {"tenants": page})


async def show_new_tenant(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    return HtmlPage("tenants/new.html", {"given": visit.form}, problem)


async def create_new_tenant(visit: Visit) -> HtmlPage:
    name = visit.form.get("name", "")
    made = await visit.call(create_tenant, name=name)
    values = {"tenant_id": made.tenant_id, "name": name, "secret_value": made.admin_key}
    return HtmlPage("tenants/created.html", {**values, "key": None}, status=201)


async def show_tenant(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    tenant = await visit.call(get_tenant, tenant_id=visit.required("id"))
    values = {
        "tenant": tenant,
        "for_all": visit.console.tenants.settings,
        "typed": visit.form.get("confirm", ""),
        "given": visit.form
        if "scope" in visit.form
        else {"scope": "admin", "expires_days": str(DEFAULT_DAYS)},
        "idempotency_key": new_idempotency_key(visit),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("tenants/tenant.html", values, problem)


async def change_settings(visit: Visit) -> PageRedirect:
    settings = {name: visit.form.get(name) == "yes" for name in SETTINGS}
    tenant_id = visit.required("id")
    await visit.call(change_tenant_settings, tenant_id=tenant_id, **settings)
    return PageRedirect(address("/tenant", id=tenant_id, done="settings"))


async def create_key_for(visit: Visit) -> HtmlPage:
    tenant_id = visit.required("id")
    try:
        tenant = await visit.call(get_tenant, tenant_id=tenant_id)
        made = await visit.call(provision_key, tenant_id=tenant_id, **key_fields(visit))
    except Repeated as error:
        values = {"key_id": error.created, "tenant_id": tenant_id}
        return HtmlPage("tenants/created_already.html", values, status=error.status)
    values = {"tenant_id": tenant_id, "name": tenant.name, "secret_value": made.key, "key": made}
    return HtmlPage("tenants/created.html", values, status=201)


async def deactivate(visit: Visit) -> PageRedirect:
    """Deactivate the tenant. The form must contain the tenant's name, typed as a confirmation."""
    tenant_id = visit.required("id")
    tenant = await visit.call(get_tenant, tenant_id=tenant_id)
    if visit.form.get("confirm") != tenant.name:
        raise invalid(["confirm: type the name exactly as it is"], "form")
    await visit.call(deactivate_tenant, tenant_id=tenant_id)
    return PageRedirect(address("/tenant", id=tenant_id, done="deactivated"))


async def reactivate(visit: Visit) -> PageRedirect:
    tenant_id = visit.required("id")
    await visit.call(reactivate_tenant, tenant_id=tenant_id)
    return PageRedirect(address("/tenant", id=tenant_id, done="reactivated"))


PAGES = (
    get("/tenants", list_tenants, show_tenants),
    get("/tenants/new", create_tenant, show_new_tenant),
    post("/tenants/create", create_tenant, create_new_tenant, show_new_tenant),
    get("/tenant", get_tenant, show_tenant),
    post("/tenant/settings", change_tenant_settings, change_settings, show_tenant),
    post("/tenant/create-key", provision_key, create_key_for, show_tenant),
    post("/tenant/deactivate", deactivate_tenant, deactivate, show_tenant),
    post("/tenant/reactivate", reactivate_tenant, reactivate, show_tenant),
)
