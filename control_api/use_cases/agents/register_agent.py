"""Registers an agent, as a draft until it is approved (`service.md` 3.1)."""

from typing import Any, ClassVar, Literal

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import refuse_unknown_key
from control_api.domain.workloads import refuse_bad_workload
from control_api.enrolment.generation import agent_documents
from control_api.enrolment.recorded_changes import agent_change
from control_api.presenters import shown_agent
from control_api.requests.base import Identifier, RequestModel, Roles, Text
from control_api.requests.workload import Workload
from control_api.responses.agents import AgentShown, CredentialType
from control_api.store.queries import agents
from control_api.store.queries.agents import StoredAgent
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed


class NewAgent(RequestModel):
    """The registry entry to create (`service.md` 2.2)."""

    example: ClassVar[dict[str, Any]] = {
        "agent_id": "agt_loans",
        "agent_role": "loan_underwriter",
        "display_name": "Loan underwriting",
        "owner": "lending",
    }

    agent_role: Identifier
    agent_id: Identifier | None = None
    display_name: Text | None = None
    description: Text | None = None
    owner: Text | None = None
    framework: Text | None = None
    permitted_roles: Roles | None = None
    credential_type: CredentialType | None = None
    bound_key_id: Identifier | None = None
    workload: Workload | None = None
    status: Literal["draft"] | None = None


async def register_agent(app: AppContext, caller: Caller, request: NewAgent) -> AgentShown:
    """Register an agent as a draft; its role need not have a policy yet."""
    # Drawn once, since `work` runs again after a conflict.
    agent_id = request.agent_id or prefixed("agt_", app.entropy(16))

    async def work(tx: Transaction) -> StoredAgent:
        if await agents.get(tx.connection, tx.tenant_id, agent_id) is not None:
            raise Conflict(f"agent `{agent_id}` is already registered")
        await refuse_unknown_key(tx, request.bound_key_id)
        # Published already as a draft: every sidecar denies a draft (`agent_not_approved`).
        agent = _draft(request, agent_id, tx.now)
        await refuse_bad_workload(tx, agent)
        await agents.add(tx.connection, tx.tenant_id, agent)
        await tx.publish(agent_documents(None, agent))
        detail = {
            "agent_role": agent.agent_role,
            "permitted_roles": list(agent.permitted_roles),
            "workload": agent.workload,
        }
        shown = agent_change(tx, None, agent)
        await app.log_change(tx, "agent.registered", agent_id, caller.by, detail, shown)
        return agent

    return shown_agent(await app.store.write(caller.tenant_id, work))


def _draft(request: NewAgent, agent_id: str, now: int) -> StoredAgent:
    return StoredAgent(
        agent_id=agent_id,
        agent_role=request.agent_role,
        display_name=request.display_name,
        description=request.description,
        owner=request.owner,
        framework=request.framework,
        # Empty: only the agent's own role (contract, section 3).
        permitted_roles=tuple(request.permitted_roles or ()),
        credential_type=request.credential_type or "api_key",
        bound_key_id=request.bound_key_id,
        workload=request.workload,
        status="draft",
        created_at=now,
        updated_at=now,
    )
