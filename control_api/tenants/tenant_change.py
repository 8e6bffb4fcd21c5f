"""What every change of a tenant does: its row, its document in the policy set, and an entry in its
own log. Knows no operation."""

from collections.abc import Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.store.queries import tenants
from control_api.store.queries.tenants import StoredTenant
from control_api.store.transaction import Transaction
from control_api.tenants.tenant_settings import effective
from policies.ground.errors import NotFound
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.record import change_record


async def change_tenant(
    app: AppContext,
    tenant_id: str,
    change: str,
    by: str,
    changed: Callable[[StoredTenant], tuple[StoredTenant, dict[str, Any]]],
) -> StoredTenant:
    """Apply `changed`, which returns the new tenant and the details for the log. Writes nothing if
    the tenant stays the same. Raises `NotFound` if there is no such tenant."""

    async def work(tx: Transaction) -> StoredTenant:
        tenant = await present(tx, tenant_id)
        after, detail = changed(tenant)
        if after == tenant:
            return tenant
        await tenants.put(tx.connection, after)
        await tx.publish({TENANT: tenant_document(effective(after, app.settings))})
        await tx.append(change_record(change, tenant_id, by, detail, record_id=app.new_id()))
        return after

    return await app.store.write(tenant_id, work)


async def present(tx: Transaction, tenant_id: str) -> StoredTenant:
    """The tenant, within a write. Raises `NotFound` if there is no such tenant."""
    return await stored(tx.connection, tenant_id)


async def stored(connection: AsyncConnection, tenant_id: str) -> StoredTenant:
    """The tenant. Raises `NotFound` if there is no such tenant."""
    tenant = await tenants.get(connection, tenant_id)
    if tenant is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return tenant
