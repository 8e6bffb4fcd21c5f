"""Move an agent along the chain of its states (`service.md` 3.1, contract sections 4 and 6)."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_agent
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.agents import AgentShown, Status
from control_api.store.queries import agents
from control_api.store.queries.agents import StoredAgent
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, NotFound
from policies.sets.policy_set import agent_document, agent_name
from policies.trail.record import change_record

# One step forward; sent back for a correction; suspended for a while, and back; the kill switch
# from every state. The same state again is a no-op. Any other move is refused, and the refusal says
# which moves are open.
MOVES = MappingProxyType(
    {
        "draft": ("pending_approval", "deprecated"),
        "pending_approval": ("approved", "draft", "deprecated"),
        "approved": ("suspended", "deprecated"),
        "suspended": ("approved", "deprecated"),
        "deprecated": (),
    }
)


class NewStatus(RequestModel):
    """The state that an agent is to be in."""

    example: ClassVar[dict[str, Any]] = {"status": "pending_approval"}

    agent_id: Identifier
    status: Status


async def change_agent_status(service: AppContext, caller: Caller, asked: NewStatus) -> AgentShown:
    """Move an agent to another state; any state may go to `deprecated`, and none comes back.

    An approved agent may be `suspended` and approved again: while it is suspended every evaluation
    with its id is denied, here and in every connected sidecar.
    """

    async def work(tx: Transaction) -> StoredAgent:
        agent = await agents.get(tx.connection, tx.tenant_id, asked.agent_id)
        if agent is None:
            raise NotFound(f"no such agent: `{asked.agent_id}`")
        if agent.status == asked.status:
            return agent
        _refuse_closed(agent, asked.status)
        moved = replace(agent, status=asked.status, updated_at=tx.now)
        await agents.put(tx.connection, tx.tenant_id, moved)
        await tx.publish({agent_name(agent.agent_id): agent_document(moved.published())})
        detail = {"from": agent.status, "to": moved.status}
        record_id = service.new_id()
        await tx.append(
            change_record("agent.status", agent.agent_id, caller.by, detail, record_id=record_id)
        )
        return moved

    return shown_agent(await service.store.write(caller.tenant.tenant_id, work))


def _refuse_closed(agent: StoredAgent, status: str) -> None:
    moves = MOVES[agent.status]
    if status not in moves:
        known = " or ".join(f"`{move}`" for move in moves) or "nothing"
        raise Conflict(
            f"agent `{agent.agent_id}` is `{agent.status}`, which may become {known}, "
            f"not `{status}`"
        )
