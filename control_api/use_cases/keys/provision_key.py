"""Creates a key for a tenant with the superadmin's credentials (`service.md` section 5)."""

from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Superadmin
from control_api.domain.keys import add_key, build_key
from control_api.domain.tenants import stored
from control_api.presenters import created_key
from control_api.requests.base import Identifier
from control_api.requests.idempotency import id_entropy
from control_api.requests.key import NewKey
from control_api.responses.keys import CreatedKey
from control_api.store.queries.keys import StoredKey
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict
from policies.ground.keys import make_key


class ProvisionedKey(NewKey):
    """The key to create, and its tenant."""

    example: ClassVar[dict[str, Any]] = NewKey.example

    tenant_id: Identifier


async def provision_key(app: AppContext, caller: Superadmin, request: ProvisionedKey) -> CreatedKey:
    """Create an API key for a tenant; its secret is shown only in this response."""
    secret = make_key(app.entropy(32))
    entropy = id_entropy(request.idempotency_key, request.tenant_id, app.entropy)

    async def work(tx: Transaction) -> StoredKey:
        tenant = await stored(tx.connection, request.tenant_id)
        # Every key of a deactivated tenant is refused, so a new one would look broken.
        if not tenant.active:
            raise Conflict(f"tenant `{tenant.tenant_id}` is deactivated: reactivate it first")
        key = build_key(request, secret, entropy, tx.now)
        await add_key(tx, key, caller.by, app.new_id())
        return key

    return created_key(await app.store.write(request.tenant_id, work), secret)
