"""Show one agent of the registry."""

from control_api.asked import Asked, Identifier
from control_api.caller import Caller
from control_api.management_shapes import AgentShown
from control_api.service import Service
from control_api.store import agents
from control_api.use_cases.rendered import shown_agent
from policies.ground.errors import NotFound


class AskedAgent(Asked):
    """Which agent."""

    agent_id: Identifier


async def get_agent(service: Service, caller: Caller, asked: AskedAgent) -> AgentShown:
    """Show one agent of the registry."""
    async with service.store.reading() as connection:
        agent = await agents.get(connection, caller.tenant.tenant_id, asked.agent_id)
    if agent is None:
        raise NotFound(f"no such agent: `{asked.agent_id}`")
    return shown_agent(agent)
