"""Creates an API key. The response shows its secret once; the store keeps only its SHA-256."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import add_key, build_key
from control_api.presenters import created_key
from control_api.requests.idempotency import id_entropy
from control_api.requests.key import NewKey
from control_api.responses.keys import CreatedKey
from control_api.store.queries.keys import StoredKey
from control_api.store.transaction import Transaction
from policies.ground.keys import make_key


async def create_key(app: AppContext, caller: Caller, request: NewKey) -> CreatedKey:
    """Create an API key; its secret is shown only in this response."""
    # Drawn once, since `work` runs again after a conflict.
    secret = make_key(app.entropy(32))
    tenant_id = caller.tenant_id
    entropy = id_entropy(request.idempotency_key, tenant_id, app.entropy)

    async def work(tx: Transaction) -> StoredKey:
        key = build_key(request, secret, entropy, tx.now)
        await add_key(tx, key, caller.by, app.new_id())
        return key

    return created_key(await app.store.write(tenant_id, work), secret)
