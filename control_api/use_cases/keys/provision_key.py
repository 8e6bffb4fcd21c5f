"""Make a key for a tenant without that tenant's credentials (`service.md` section 5)."""

from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.keys.key_change import add_key, build_key
from control_api.presenters import created_key
from control_api.requests.base import Identifier
from control_api.requests.key import NewKey
from control_api.responses.management import CreatedKey
from control_api.store.queries.keys import StoredKey
from control_api.store.transaction import Transaction
from control_api.tenants.tenant_change import present
from policies.ground.errors import Conflict
from policies.ground.keys import make_key


class ProvisionedKey(NewKey):
    """What the key is to be, and for which tenant."""

    example: ClassVar[dict[str, Any]] = NewKey.example

    tenant_id: Identifier


async def provision_key(
    service: AppContext, caller: Superadmin, asked: ProvisionedKey
) -> CreatedKey:
    """Create an API key for a tenant; its secret is in this answer and nowhere else."""
    secret = make_key(service.entropy(32))

    async def work(tx: Transaction) -> StoredKey:
        tenant = await present(tx, asked.tenant_id)
        if not tenant.active:
            raise Conflict(f"tenant `{tenant.tenant_id}` is deactivated: reactivate it first")
        key = build_key(asked, secret, service.entropy(16), tx.now)
        await add_key(tx, key, caller.by, service.new_id())
        return key

    return created_key(await service.store.write(asked.tenant_id, work), secret)
