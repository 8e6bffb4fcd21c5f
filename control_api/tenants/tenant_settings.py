"""What holds for a tenant: its own settings and the service's, together. Published as a document,
so that every sidecar decides by the same.

The effective rule is the global flag OR the tenant's (`service.md` section 5).
"""

from control_api.settings import Settings
from control_api.store.queries import tenants
from control_api.store.queries.tenants import StoredTenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.definitions.model import TenantSettings
from policies.sets.policy_set import TENANT, tenant_document


def effective(tenant: StoredTenant, settings: Settings) -> TenantSettings:
    return TenantSettings(
        tenant_id=tenant.tenant_id,
        require_agent_id=tenant.require_agent_id or settings.require_agent_id,
        session_ttl_minutes=settings.session_ttl_minutes,
        pii_masking=tenant.pii_masking or settings.pii_masking,
        active=tenant.active,
        frozen_at=tenant.frozen_at,
    )


async def publish_settings(store: Store, settings: Settings, tenant_id: str) -> None:
    """Bring the tenant's document to what the service was started with; none is written where it
    says so already."""

    async def work(tx: Transaction) -> None:
        tenant = await tenants.get(tx.connection, tenant_id)
        if tenant is not None:
            await tx.publish({TENANT: tenant_document(effective(tenant, settings))})

    await store.write(tenant_id, work)
