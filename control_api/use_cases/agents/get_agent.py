"""Show one agent of the registry, and what it did lately."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import agent_fields, deny_rate, time_or_none
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.agents import ACTIVITY_WINDOW, Activity, AgentDetail
from control_api.responses.counts import SourceCount
from control_api.store.counters import queries as tallies
from control_api.store.counters.queries import NO_DECISIONS, CountedValue
from control_api.store.queries import agents
from policies.ground.errors import NotFound

MOST_SOURCES = 100
"""Sources that are named, the most asked for first."""


class AskedAgent(RequestModel):
    """Which agent."""

    agent_id: Identifier


async def get_agent(service: AppContext, caller: Caller, asked: AskedAgent) -> AgentDetail:
    """Show one agent of the registry, with its activity of the last seven days."""
    tenant_id, agent_id = caller.tenant.tenant_id, asked.agent_id
    since = service.clock.now() - ACTIVITY_WINDOW
    async with service.store.reading(tenant_id) as connection:
        agent = await agents.get(connection, tenant_id, agent_id)
        if agent is None:
            raise NotFound(f"no such agent: `{agent_id}`")
        lately = await tallies.by_agent(connection, tenant_id, since, agent_id)
        sources = await tallies.sources_of(connection, tenant_id, agent_id, since, MOST_SOURCES)
    activity = _activity(lately[0] if lately else NO_DECISIONS, sources)
    return AgentDetail(**agent_fields(agent), activity=activity)


def _activity(lately: CountedValue, sources: list[CountedValue]) -> Activity:
    return Activity(
        total=lately.total,
        allowed=lately.allowed,
        denied=lately.denied,
        deny_rate=deny_rate(lately.allowed, lately.denied),
        last_active=time_or_none(lately.last_ts or None),
        sources=[SourceCount(each.value, each.total, each.denied) for each in sources],
    )
