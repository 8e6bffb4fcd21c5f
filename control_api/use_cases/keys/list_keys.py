"""Lists a tenant's API keys, without their secrets."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import listed_key
from control_api.requests.base import ListRequest
from control_api.responses.management import ListedKey
from control_api.responses.paging import Page, page_of
from control_api.store.queries import keys


async def list_keys(app: AppContext, caller: Caller, request: ListRequest) -> Page[ListedKey]:
    """List API keys that are not revoked, newest first, without their secrets."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await keys.page(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    return page_of(rows, request.limit, lambda key: (key.created_at, key.key_id), listed_key)
