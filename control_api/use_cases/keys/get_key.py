"""Shows one API key."""

from dataclasses import asdict

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import listed_key
from control_api.requests.key import KeyRequest
from control_api.responses.keys import ShownKey
from control_api.store.queries import keys, sidecar_owners
from policies.ground.errors import NotFound


async def get_key(app: AppContext, caller: Caller, request: KeyRequest) -> ShownKey:
    """Show an API key that is not revoked, without its secret, and the sidecars that use it."""
    async with app.store.reading(caller.tenant_id) as connection:
        key = await keys.get(connection, caller.tenant_id, request.key_id)
        used = await sidecar_owners.used_by(connection, caller.tenant_id, request.key_id)
    if key is None:
        raise NotFound(f"no such key: `{request.key_id}`")
    return ShownKey(**asdict(listed_key(key)), sidecars=used)
