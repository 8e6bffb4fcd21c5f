"""Register an agent: a draft, until it is approved (`service.md` 3.1)."""

from typing import Any, ClassVar, Literal

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.keys.key_change import refuse_unknown_key
from control_api.presenters import shown_agent
from control_api.requests.base import Identifier, RequestModel, Roles, Text
from control_api.responses.agents import AgentShown
from control_api.store.queries import agents
from control_api.store.queries.agents import StoredAgent
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed
from policies.sets.policy_set import agent_document, agent_name
from policies.trail.record import change_record


class NewAgent(RequestModel):
    """A registry entry (`service.md` 2.2). It starts as a draft, whatever it will be."""

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
    credential_type: Literal["api_key", "jwt_oidc", "mtls", "conjur"] | None = None
    bound_key_id: Identifier | None = None
    status: Literal["draft"] | None = None


async def register_agent(service: AppContext, caller: Caller, asked: NewAgent) -> AgentShown:
    """Register an agent as a draft; whether a policy has its role is judged at evaluation."""
    agent_id = asked.agent_id or prefixed("agt_", service.entropy(16))

    async def work(tx: Transaction) -> StoredAgent:
        if await agents.get(tx.connection, tx.tenant_id, agent_id) is not None:
            raise Conflict(f"an agent `{agent_id}` is registered already")
        await refuse_unknown_key(tx, asked.bound_key_id)
        agent = _draft(asked, agent_id, tx.now)
        await agents.add(tx.connection, tx.tenant_id, agent)
        await tx.publish({agent_name(agent_id): agent_document(agent.published())})
        detail = {"agent_role": agent.agent_role, "permitted_roles": list(agent.permitted_roles)}
        record_id = service.new_id()
        await tx.append(
            change_record("agent.registered", agent_id, caller.by, detail, record_id=record_id)
        )
        return agent

    return shown_agent(await service.store.write(caller.tenant.tenant_id, work))


def _draft(asked: NewAgent, agent_id: str, now: int) -> StoredAgent:
    return StoredAgent(
        agent_id=agent_id,
        agent_role=asked.agent_role,
        display_name=asked.display_name,
        description=asked.description,
        owner=asked.owner,
        framework=asked.framework,
        permitted_roles=tuple(asked.permitted_roles or ()),
        credential_type=asked.credential_type or "api_key",
        bound_key_id=asked.bound_key_id,
        status="draft",
        created_at=now,
        updated_at=now,
    )
