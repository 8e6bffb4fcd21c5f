"""How many decisions the audit trail holds, and of what. Counted while the log grows
(`control_api.store.counters.counters`): as fast after a billion events as after ten."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import deny_rate
from control_api.requests.base import EmptyRequest
from control_api.responses.counts import RoleCount, SourceCount, Stats, TypeCount
from control_api.store.counters import queries as tallies
from control_api.store.counters.dimensions import Dimension

TOP = 10
"""Roles and sources that are named, those with the most events."""


async def show_stats(service: AppContext, caller: Caller, _: EmptyRequest) -> Stats:
    """Count the tenant's audit events, as far as retention has kept them."""
    tenant_id = caller.tenant.tenant_id
    async with service.store.reading(tenant_id) as connection:
        types = await tallies.all_of(connection, tenant_id, Dimension.source_type)
        roles = await tallies.top_of(connection, tenant_id, Dimension.agent_role, TOP)
        sources = await tallies.top_of(connection, tenant_id, Dimension.source_id, TOP)
    allowed, denied = sum(each.allowed for each in types), sum(each.denied for each in types)
    return Stats(
        total=allowed + denied,
        allowed=allowed,
        denied=denied,
        deny_rate=deny_rate(allowed, denied),
        by_source_type={
            each.value: TypeCount(each.total, each.allowed, each.denied) for each in types
        },
        top_roles=[RoleCount(each.value, each.total, each.denied) for each in roles],
        top_sources=[SourceCount(each.value, each.total, each.denied) for each in sources],
    )
