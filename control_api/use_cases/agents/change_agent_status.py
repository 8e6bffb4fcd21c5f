"""Moves an agent from one status to another (`service.md` 3.1, contract sections 4 and 6)."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.enrolment.generation import agent_documents, with_generation
from control_api.enrolment.recorded_changes import agent_change, given_reason
from control_api.presenters import shown_agent
from control_api.requests.base import Identifier, Reason, RequestModel
from control_api.responses.agents import AgentShown
from control_api.store.queries import agents
from control_api.store.queries.agents import StoredAgent
from control_api.store.transaction import Transaction
from policies.definitions.model import AgentStatus
from policies.ground.errors import Conflict, NotFound

# An agent moves forward one step at a time. A pending one can go back to `draft` for a correction,
# and an approved one can be suspended and approved again. `deprecated` is the kill switch: every
# other status allows it, and it is final. Setting the current status again changes nothing. Any
# other move is refused, and the error lists the allowed ones.
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
    """The status to move an agent to, and why."""

    example: ClassVar[dict[str, Any]] = {
        "status": "pending_approval",
        "reason": "the review board asked for it",
    }

    agent_id: Identifier
    status: AgentStatus
    reason: Reason | None = None


async def change_agent_status(app: AppContext, caller: Caller, request: NewStatus) -> AgentShown:
    """Move an agent to another status; any status may become `deprecated`, which is final.

    An approved agent may be `suspended` and approved again. While it is suspended, every evaluation
    with its id is denied, here and in every connected sidecar, and the keys that its pods enrolled
    for are dead.
    """

    async def work(tx: Transaction) -> StoredAgent:
        agent = await agents.get(tx.connection, tx.tenant_id, request.agent_id)
        if agent is None:
            raise NotFound(f"no such agent: `{request.agent_id}`")
        if agent.status == request.status:
            return agent  # a repeated request succeeds, and adds nothing to the log
        _refuse_closed_move(agent, request.status)
        moved = replace(agent, status=request.status, updated_at=tx.now)
        # The keys that pods enrolled for die in the same commit as the status that allowed them.
        moved = with_generation(agent, moved, app.entropy(16))
        await agents.put(tx.connection, tx.tenant_id, moved)
        await tx.publish(agent_documents(agent, moved))
        detail = {"from": agent.status, "to": moved.status, **given_reason(request.reason)}
        shown = agent_change(tx, agent, moved)
        await app.log_change(tx, "agent.status", agent.agent_id, caller.by, detail, shown)
        return moved

    return shown_agent(await app.store.write(caller.tenant_id, work))


def _refuse_closed_move(agent: StoredAgent, status: str) -> None:
    moves = MOVES[agent.status]
    if status not in moves:
        allowed = " or ".join(f"`{move}`" for move in moves) or "nothing"
        raise Conflict(
            f"agent `{agent.agent_id}` is `{agent.status}`, which may become {allowed}, "
            f"not `{status}`"
        )
