"""Suggests how to name a source, by policies of other roles that name the end of its id."""

from control_api.store.queries import policies
from control_api.store.store import Store
from policies.sets.role import compile_clause
from policies.suggestion import named_by

MAX_POLICIES = 100


async def suggest_of_others(store: Store, tenant_id: str, source_id: str) -> str | None:
    """Looks through the tenant's newest policies that hold the last part of `source_id`."""
    last = source_id.rpartition("/")[2]
    if not last:
        return None
    async with store.reading(tenant_id) as connection:
        wanted = policies.Filter(text=last)
        found = await policies.page(connection, tenant_id, wanted, None, MAX_POLICIES)
    return named_by(source_id, tuple(compile_clause(each.published()) for each in found))
