"""The steps that every change of a tenant shares: updating its row, publishing its document in the
policy set, and appending an entry to its own log. Knows no single operation."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.append import Changes
from control_api.settings import Settings
from control_api.store import cited_documents
from control_api.store.queries import tenant_rows
from control_api.store.queries.policy_rows import read_candidates
from control_api.store.queries.tenant_rows import StoredTenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.definitions.model import TenantSettings
from policies.ground.errors import NotFound
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.change import ObjectChange

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_FREE_TEXT = ("reason",)  # an operator's own words, why a tenant is frozen


@dataclass(frozen=True, slots=True)
class TenantChanges:
    """Changes tenants. `settings` are the service's own, whose limits bind every tenant."""

    store: Store
    changes: Changes
    settings: Settings

    async def change(
        self,
        tenant_id: str,
        change: str,
        by: str,
        changed: Callable[[StoredTenant], tuple[StoredTenant, dict[str, Any]]],
        shown: Callable[[StoredTenant], "DataclassInstance"],
    ) -> StoredTenant:
        """Apply `changed` to a tenant and return the new tenant. `changed` returns the new tenant
        and the details for the log; `shown` returns what the operation's route shows of a tenant.
        Writes nothing if the tenant stays the same. Raises `NotFound` if there is no such
        tenant."""

        async def work(tx: Transaction) -> StoredTenant:
            tenant = await stored(tx.connection, tenant_id)
            after, detail = changed(tenant)
            if after == tenant:
                return tenant
            await tenant_rows.put(tx.connection, after)
            await tx.publish({TENANT: tenant_document(effective(after, self.settings))})
            both = ObjectChange(
                asdict(shown(tenant)), asdict(shown(after)), _FREE_TEXT, tx.published(TENANT)
            )
            await self.changes.record(tx, change, tenant_id, by, detail, both)
            return after

        return await self.store.write(tenant_id, work)


async def stored(connection: AsyncConnection, tenant_id: str) -> StoredTenant:
    """Return the tenant. Raises `NotFound` if there is no such tenant."""
    tenant = await tenant_rows.get(connection, tenant_id)
    if tenant is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    return tenant


async def publish_settings(store: Store, settings: Settings, tenant_id: str) -> None:
    """Publish the tenant's document with the service's current settings. Also keep the documents in
    force that an older version published without keeping them for later derivation. Writes nothing
    if nothing has changed."""

    async def work(tx: Transaction) -> None:
        tenant = await tenant_rows.get(tx.connection, tenant_id)
        if tenant is not None:
            await tx.publish({TENANT: tenant_document(effective(tenant, settings))})
            await cited_documents.adopt(tx.connection, tenant_id, tx.now)

    await store.write(tenant_id, work)


def effective(tenant: StoredTenant, settings: Settings) -> TenantSettings:
    return TenantSettings(
        tenant_id=tenant.tenant_id,
        # The service's flag OR the tenant's (`CONTRACT.md`, Tenants): a tenant can't opt out of a
        # rule that the operator sets for all.
        require_agent_id=tenant.require_agent_id or settings.require_agent_id,
        session_ttl_minutes=settings.session_ttl_minutes,
        pii_masking=tenant.pii_masking or settings.pii_masking,
        active=tenant.active,
        frozen_at=tenant.frozen_at,
        candidates=tuple(each.listed for each in read_candidates(tenant.candidates)),
    )
