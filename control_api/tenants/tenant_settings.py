"""Combines a tenant's own settings with the service's: the global flag OR the tenant's
(`app.md` section 5). They are published as a document, so every sidecar decides by the same
settings."""

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
    """Publish the tenant's document with the service's current settings. Writes nothing if they
    have not changed."""

    async def work(tx: Transaction) -> None:
        tenant = await tenants.get(tx.connection, tenant_id)
        if tenant is not None:
            await tx.publish({TENANT: tenant_document(effective(tenant, settings))})

    await store.write(tenant_id, work)
