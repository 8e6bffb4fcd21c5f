"""Changes an agent's registry entry, except its status, which has an operation of its own."""

from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import refuse_unknown_key
from control_api.domain.workloads import refuse_bad_workload
from control_api.enrolment.generation import agent_documents, with_generation
from control_api.enrolment.recorded_changes import agent_change, given_reason
from control_api.presenters import shown_agent
from control_api.requests.base import Identifier, Reason, RequestModel, Roles, Text
from control_api.requests.workload import Workload
from control_api.responses.agents import AgentDetail, AgentShown, CredentialType
from control_api.store.queries import agents
from control_api.store.queries.agents import StoredAgent
from control_api.store.transaction import Transaction
from policies.definitions.model import AgentStatus
from policies.ground.errors import NotFound, invalid


class ChangedAgent(RequestModel):
    """The fields to change. Fields left out keep their value; null clears a field, or resets it to
    its default if it has one."""

    example: ClassVar[dict[str, Any]] = {"owner": "lending", "framework": "langchain"}
    shown = AgentDetail

    agent_id: Identifier
    agent_role: Identifier = ""
    display_name: Text | None = None
    description: Text | None = None
    owner: Text | None = None
    framework: Text | None = None
    permitted_roles: Roles | None = None
    credential_type: CredentialType | None = None
    bound_key_id: Identifier | None = None
    workload: Workload | None = None
    status: AgentStatus = Field(
        "draft",
        description="The agent's status as it is, or left out: it has an operation of its own.",
    )
    reason: Reason | None = None

    def changes(self, agent: StoredAgent) -> dict[str, Any]:
        """The fields that the request gives, in the form that the row stores."""
        given = self.model_dump(include=self.model_fields_set - {"agent_id", "status", "reason"})
        # Null resets these two to their defaults.
        if "permitted_roles" in given:
            given["permitted_roles"] = tuple(given["permitted_roles"] or ())
            own = given["permitted_roles"] == (agent.agent_role,)
            if own and not agent.permitted_roles and self.agent_role in ("", agent.agent_role):
                # A GET shows its own role for an agent that has no list. It stays without one.
                del given["permitted_roles"]
        if "credential_type" in given:
            given["credential_type"] = given["credential_type"] or "api_key"
        return given


async def update_agent(app: AppContext, caller: Caller, request: ChangedAgent) -> AgentShown:
    """Change an agent's registry entry, except its status."""

    async def work(tx: Transaction) -> StoredAgent:
        agent = await agents.get(tx.connection, tx.tenant_id, request.agent_id)
        if agent is None:
            raise NotFound(f"no such agent: `{request.agent_id}`")
        _check_status(agent, request)
        changes = request.changes(agent)
        changed = replace(agent, **changes)
        if changed == agent:
            return agent
        # Check only a new binding: the key of the old one may have been revoked since, and must not
        # stop other changes.
        if changed.bound_key_id != agent.bound_key_id:
            await refuse_unknown_key(tx, changed.bound_key_id)
        await refuse_bad_workload(tx, changed)
        changed = replace(changed, updated_at=tx.now)
        changed = with_generation(agent, changed, app.entropy(16))
        await agents.put(tx.connection, tx.tenant_id, changed)
        await tx.publish(agent_documents(agent, changed))
        # The log gets the values that decisions depend on, and of the other fields only the names.
        detail = {
            "fields": sorted(each for each in changes if changes[each] != getattr(agent, each)),
            "agent_role": changed.agent_role,
            "permitted_roles": list(changed.permitted_roles),
            "bound_key_id": changed.bound_key_id,
            "workload": changed.workload,
            **given_reason(request.reason),
        }
        shown = agent_change(tx, agent, changed)
        await app.log_change(tx, "agent.updated", agent.agent_id, caller.by, detail, shown)
        return changed

    return shown_agent(await app.store.write(caller.tenant_id, work))


def _check_status(agent: StoredAgent, request: ChangedAgent) -> None:
    """Raise `Invalid` if the request gives another status than the agent has."""
    if "status" in request.model_fields_set and request.status != agent.status:
        raise invalid([f"status: is `{agent.status}`; an operation of its own changes it"])
