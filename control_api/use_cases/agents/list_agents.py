"""Lists the registered agents."""

from typing import Annotated

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_agent
from control_api.requests.base import Identifier, ListRequest, Text
from control_api.responses.agents import AgentShown
from control_api.responses.paging import Page, page_of
from control_api.store.queries import agents
from policies.definitions.model import AgentStatus


class AgentsRequest(ListRequest):
    """Every filter but `text` is an exact match; an agent must match all that are given."""

    status: AgentStatus | None = None
    agent_role: Identifier | None = None
    owner: Text | None = None
    framework: Text | None = None
    text: Annotated[str, Field(min_length=1, max_length=256, pattern="^[^\\u0000]*$")] | None = (
        Field(None, description="Only agents with this in their id, name, owner or description.")
    )


async def list_agents(app: AppContext, caller: Caller, request: AgentsRequest) -> Page[AgentShown]:
    """List registered agents, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await agents.page(
            connection,
            caller.tenant_id,
            request.model_dump(include={*agents.FILTERS, "text"}),
            request.after(int, str),
            request.limit + 1,
        )
    return page_of(rows, request.limit, lambda row: (row.created_at, row.agent_id), shown_agent)
