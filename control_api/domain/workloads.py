"""Checks an agent's workload before it is stored. Knows no token."""

from control_api.store.queries import agents
from control_api.store.queries.agents import StoredAgent
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, invalid


async def refuse_bad_workload(tx: Transaction, agent: StoredAgent) -> None:
    """Raise `Invalid` or `Conflict` if the agent can't have its workload."""
    if agent.workload is None:
        return
    if agent.bound_key_id is not None:
        # Its pods hold other keys, so every one of their evaluations would be denied (check 4).
        raise invalid(["bound_key_id: must be null for an agent with a workload"])
    holder = await agents.of_workload(tx.connection, tx.tenant_id, agent.workload)
    if holder is not None and holder.agent_id != agent.agent_id:
        raise Conflict(f"the workload belongs to agent `{holder.agent_id}`")
