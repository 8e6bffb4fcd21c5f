"""How many agents there are in each state, and how often they are denied."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import deny_rate
from control_api.requests.base import EmptyRequest
from control_api.responses.agents import ACTIVITY_WINDOW, RegistryCounts
from control_api.store.counters import queries as tallies
from control_api.store.queries import agents


async def show_registry_counts(
    service: AppContext, caller: Caller, _: EmptyRequest
) -> RegistryCounts:
    """Count the registry's agents by state; deny rates are of the last seven days."""
    tenant_id = caller.tenant.tenant_id
    async with service.store.reading(tenant_id) as connection:
        states = await agents.count_by_status(connection, tenant_id)
        since = service.clock.now() - ACTIVITY_WINDOW
        lately = await tallies.by_agent(connection, tenant_id, since)
    return RegistryCounts(
        total=sum(states.values()),
        draft=states.get("draft", 0),
        pending_approval=states.get("pending_approval", 0),
        approved=states.get("approved", 0),
        suspended=states.get("suspended", 0),
        deprecated=states.get("deprecated", 0),
        pending=states.get("pending_approval", 0),
        deny_rate=deny_rate(
            sum(each.allowed for each in lately), sum(each.denied for each in lately)
        ),
        deny_rates={each.value: deny_rate(each.allowed, each.denied) for each in lately},
    )
