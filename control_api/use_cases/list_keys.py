"""List a tenant's API keys, without any secret."""

from control_api.asked import Listed
from control_api.caller import Caller
from control_api.management_shapes import ListedKey
from control_api.paging import Page, page_of
from control_api.service import Service
from control_api.store import keys
from control_api.use_cases.rendered import listed_key


class AskedKeys(Listed):
    """Nothing but a page."""


async def list_keys(service: Service, caller: Caller, asked: AskedKeys) -> Page[ListedKey]:
    """List the API keys that were not revoked, newest first; never a secret."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        rows = await keys.page(
            connection, caller.tenant.tenant_id, asked.after(int, str), asked.limit + 1
        )
    return page_of(rows, asked.limit, lambda key: (key.created_at, key.key_id), listed_key)
