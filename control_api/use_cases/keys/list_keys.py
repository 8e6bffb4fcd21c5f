"""List a tenant's API keys, without any secret."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import listed_key
from control_api.requests.base import Listed
from control_api.responses.management import ListedKey
from control_api.responses.paging import Page, page_of
from control_api.store.queries import keys


class AskedKeys(Listed):
    """Nothing but a page."""


async def list_keys(service: AppContext, caller: Caller, asked: AskedKeys) -> Page[ListedKey]:
    """List the API keys that were not revoked, newest first; never a secret."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        rows = await keys.page(
            connection, caller.tenant.tenant_id, asked.after(int, str), asked.limit + 1
        )
    return page_of(rows, asked.limit, lambda key: (key.created_at, key.key_id), listed_key)
