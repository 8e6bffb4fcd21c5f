"""Create a tenant, with its first admin key, which is shown this once."""

import logging
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.keys.key_change import add_key, build_key
from control_api.policies.policy_reload import reload_tenant
from control_api.requests.base import Identifier, RequestModel
from control_api.requests.key import NewKey
from control_api.responses.tenants import CreatedTenant
from control_api.store.queries import tenants
from control_api.store.queries.tenants import StoredTenant
from control_api.store.transaction import Transaction
from control_api.tenants.tenant_settings import effective
from policies.definitions.definition import LoadError
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed
from policies.ground.keys import make_key
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.record import change_record

_FIRST = NewKey(name="first admin", scope="admin", expires_days=None)
_log = logging.getLogger("sluice.policies")


class NewTenant(RequestModel):
    """What the tenant is called; no two are called the same."""

    example: ClassVar[dict[str, Any]] = {"name": "acme"}

    name: Identifier


async def create_tenant(service: AppContext, caller: Superadmin, asked: NewTenant) -> CreatedTenant:
    """Create a tenant; its admin key is in this answer and nowhere else."""
    tenant_id = prefixed("ten_", service.entropy(16))
    secret = make_key(service.entropy(32))

    async def work(tx: Transaction) -> None:
        if await tenants.find_by_name(tx.connection, tenant_id, asked.name) is not None:
            raise Conflict(f"a tenant is called `{asked.name}` already")
        tenant = StoredTenant(tenant_id, asked.name, tx.now, False, False, True)
        await tenants.add(tx.connection, tenant)
        await tx.publish({TENANT: tenant_document(effective(tenant, service.settings))})
        detail, record_id = {"name": tenant.name}, service.new_id()
        await tx.append(
            change_record("tenant.created", tenant_id, caller.by, detail, record_id=record_id)
        )
        admin = build_key(_FIRST, secret, service.entropy(16), tx.now)
        await add_key(tx, admin, caller.by, service.new_id())

    await service.store.write(tenant_id, work)
    try:
        await reload_tenant(service, tenant_id, caller.by)
    except LoadError as error:
        # The tenant is there, and the watch goes on looking at its files.
        _log.error("the policies of tenant `%s` can't be used: %s", tenant_id, error)
    return CreatedTenant(tenant_id, secret)
