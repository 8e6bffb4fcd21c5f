"""Shows one registered agent and its recent activity."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import deny_rate
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.agents import ACTIVITY_WINDOW, Activity, AgentDetail
from control_api.responses.counts import OverTime, SourceCount, SpanCount
from control_api.responses.times import time_or_none
from control_api.store.counters import queries as counters
from control_api.store.counters.dimensions import HOUR
from control_api.store.counters.queries import NO_DECISIONS, CountedValue
from control_api.store.queries import agents
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound

SPAN_HOURS = 4
SPAN = SPAN_HOURS * HOUR
MAX_SOURCES = 100
"""The most sources that a response lists, those with the most events first."""


class AgentDetailRequest(RequestModel):
    """Names one agent."""

    agent_id: Identifier


async def get_agent(app: AppContext, caller: Caller, request: AgentDetailRequest) -> AgentDetail:
    """Show a registered agent and its activity during the last 7 days."""
    tenant_id, agent_id = caller.tenant_id, request.agent_id
    now = app.clock.now()
    since = now - ACTIVITY_WINDOW
    async with app.store.reading(tenant_id) as connection:
        agent = await agents.get(connection, tenant_id, agent_id)
        if agent is None:
            raise NotFound(f"no such agent: `{agent_id}`")
        recent = await counters.by_agent(connection, tenant_id, since, agent_id)
        sources = await counters.sources_of(connection, tenant_id, agent_id, since, MAX_SOURCES)
        first, until = since // SPAN, now // SPAN + 1
        by_span = await counters.agent_by_spans(connection, tenant_id, agent_id, SPAN_HOURS, first)
    spans = [SpanCount(rfc3339(at * SPAN), *by_span.get(at, (0, 0))) for at in range(first, until)]
    # An agent without decisions in this window has no counts.
    activity = _activity(recent[0] if recent else NO_DECISIONS, sources, spans)
    return AgentDetail(**agent.shown(), activity=activity)


def _activity(
    counted: CountedValue, sources: list[CountedValue], spans: list[SpanCount]
) -> Activity:
    return Activity(
        total=counted.total,
        allowed=counted.allowed,
        denied=counted.denied,
        deny_rate=deny_rate(counted.allowed, counted.denied),
        last_active=time_or_none(counted.last_ts or None),
        sources=[SourceCount(each.value, each.total, each.denied) for each in sources],
        over_time=OverTime(SPAN_HOURS * 60, spans),
    )
