"""Counts a tenant's decisions by source type, role and source."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import deny_rate
from control_api.requests.base import EmptyRequest
from control_api.responses.counts import RoleCount, SourceCount, Stats, TypeCount
from control_api.store.counters import queries as counters
from control_api.store.counters.dimensions import Dimension

TOP = 10
"""The most roles, and the most sources, that a response lists: those with the most events."""


async def show_stats(app: AppContext, caller: Caller, _: EmptyRequest) -> Stats:
    """Count the tenant's audit events that retention has kept."""
    tenant_id = caller.tenant_id
    # These counters grow in step with the log, so the response takes as long after ten events as
    # after a billion.
    async with app.store.reading(tenant_id) as connection:
        types = await counters.all_of(connection, tenant_id, Dimension.source_type)
        roles = await counters.top_of(connection, tenant_id, Dimension.agent_role, TOP)
        sources = await counters.top_of(connection, tenant_id, Dimension.source_id, TOP)
    # Every event has exactly one source type, so the counts by type add up to all events.
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
