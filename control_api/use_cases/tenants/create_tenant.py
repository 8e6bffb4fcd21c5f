"""Creates a tenant and its first admin key, whose secret is shown once."""

import logging
from dataclasses import asdict
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.domain.keys import add_key, build_key
from control_api.domain.policy_reload import reload_tenant
from control_api.domain.tenants import effective
from control_api.presenters import shown_tenant
from control_api.requests.base import Identifier, RequestModel
from control_api.requests.key import NewKey
from control_api.responses.tenants import CreatedTenant
from control_api.store.queries import tenants
from control_api.store.queries.tenants import StoredTenant
from control_api.store.transaction import Transaction
from policies.definitions.definition import LoadError
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed
from policies.ground.keys import make_key
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.change import ObjectChange

_FIRST_KEY = NewKey(name="first admin", scope="admin", expires_days=None)
_log = logging.getLogger("sluice.policies")


class NewTenant(RequestModel):
    """The tenant's name, which must be unique."""

    example: ClassVar[dict[str, Any]] = {"name": "acme"}

    name: Identifier


async def create_tenant(app: AppContext, caller: Superadmin, request: NewTenant) -> CreatedTenant:
    """Create a tenant; its admin key is shown only in this response."""
    tenant_id = prefixed("ten_", app.entropy(16))
    secret = make_key(app.entropy(32))

    async def work(tx: Transaction) -> None:
        if await tenants.find_by_name(tx.connection, tenant_id, request.name) is not None:
            raise Conflict(f"a tenant named `{request.name}` already exists")
        tenant = StoredTenant(tenant_id, request.name, tx.now, False, False, True)
        await tenants.add(tx.connection, tenant)
        await tx.publish({TENANT: tenant_document(effective(tenant, app.settings))})
        detail = {"name": tenant.name}
        change = ObjectChange(None, asdict(shown_tenant(tenant)), published=tx.published(TENANT))
        await app.log_change(tx, "tenant.created", tenant_id, caller.by, detail, change)
        admin = build_key(_FIRST_KEY, secret, app.entropy(16), tx.now)
        await add_key(tx, admin, caller.by, app.new_id())

    await app.store.write(tenant_id, work)
    # Committed. If we die here, the caller never sees the admin key; the superadmin creates another
    # with `provision_key`. The tenant's files are loaded when they change, or at the next start.
    try:
        await reload_tenant(app, tenant_id, caller.by)
    except LoadError as error:
        # The tenant exists nonetheless; the file watcher retries when the tenant's files change.
        _log.error("the policy files of tenant `%s` can't be loaded: %s", tenant_id, error)
    return CreatedTenant(tenant_id, secret)
