"""Registers, lists, shows and updates agents, and changes their status (`CONTRACT.md`, Agents)."""

from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from control_api.audit.event_operations import OverTime, SourceCount, SpanCount, deny_rate
from control_api.auth import Caller
from control_api.edge.answers import Page, page_of, time_or_none
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    KEPT_REASON,
    EmptyRequest,
    Identifier,
    ListRequest,
    Reason,
    RequestModel,
    Roles,
    Text,
)
from control_api.registry import queries
from control_api.registry.bundle import Registry
from control_api.registry.enrolment.pods import (
    agent_change,
    agent_documents,
    given_reason,
    with_generation,
)
from control_api.registry.enrolment.token import Workload
from control_api.registry.key_operations import refuse_unknown_key
from control_api.registry.models import (
    ACTIVITY_WINDOW,
    Activity,
    AgentDetail,
    AgentResponse,
    RegistryCounts,
    shown_agent,
)
from control_api.registry.queries import CredentialType, StoredAgent
from control_api.store.counters import queries as counters
from control_api.store.counters.counters import HOUR
from control_api.store.counters.queries import NO_DECISIONS
from control_api.store.transaction import Transaction
from policies.definitions.model import AgentStatus
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, invalid
from policies.ground.ids import prefixed

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
    status: Annotated[AgentStatus, says("The status to move the agent to.")]
    reason: Annotated[Reason | None, KEPT_REASON] = None


async def change_agent_status(
    registry: Registry, caller: Caller, request: NewStatus
) -> AgentResponse:
    """Move an agent to another status; any status may become `deprecated`, which is final.

    An approved agent may be `suspended` and approved again. While it is suspended, every evaluation
    with its id is denied, here and in every connected sidecar, and the keys that its pods enrolled
    for are dead.
    """

    async def work(tx: Transaction) -> StoredAgent:
        agent = await queries.existing(tx.connection, tx.tenant_id, request.agent_id)
        if agent.status == request.status:
            return agent  # a repeated request succeeds, and adds nothing to the log
        _refuse_closed_move(agent, request.status)
        moved = replace(agent, status=request.status, updated_at=tx.now)
        # The keys that pods enrolled for die in the same commit as the status that allowed them.
        moved = with_generation(agent, moved, registry.entropy(16))
        await queries.put(tx.connection, tx.tenant_id, moved)
        await tx.publish(agent_documents(agent, moved))
        detail = {"from": agent.status, "to": moved.status, **given_reason(request.reason)}
        shown = agent_change(tx, agent, moved)
        await registry.changes.record(tx, "agent.status", agent.agent_id, caller.by, detail, shown)
        return moved

    return shown_agent(await registry.store.write(caller.tenant_id, work))


def _refuse_closed_move(agent: StoredAgent, status: str) -> None:
    moves = MOVES[agent.status]
    if status not in moves:
        allowed = " or ".join(f"`{move}`" for move in moves) or "nothing"
        raise Conflict(
            f"agent `{agent.agent_id}` is `{agent.status}`, which may become {allowed}, "
            f"not `{status}`"
        )


SPAN_HOURS = 4
SPAN = SPAN_HOURS * HOUR
MAX_SOURCES = 100
"""The most sources that a response lists, those with the most events first."""


class AgentDetailRequest(RequestModel):
    """A request about one agent, which the path names by its id."""

    agent_id: Identifier


async def get_agent(registry: Registry, caller: Caller, request: AgentDetailRequest) -> AgentDetail:
    """Show a registered agent and its activity during the last 7 days."""
    tenant_id, agent_id = caller.tenant_id, request.agent_id
    now = registry.clock.now()
    since = now - ACTIVITY_WINDOW
    async with registry.store.reading(tenant_id) as connection:
        agent = await queries.existing(connection, tenant_id, agent_id)
        recent = await counters.by_agent(connection, tenant_id, since, agent_id)
        sources = await counters.sources_of(connection, tenant_id, agent_id, since, MAX_SOURCES)
        first, until = since // SPAN, now // SPAN + 1
        by_span = await counters.agent_by_spans(connection, tenant_id, agent_id, SPAN_HOURS, first)
    spans = [SpanCount(rfc3339(at * SPAN), *by_span.get(at, (0, 0))) for at in range(first, until)]
    # An agent without decisions in this window has no counts.
    counted = recent[0] if recent else NO_DECISIONS
    activity = Activity(
        total=counted.total,
        allowed=counted.allowed,
        denied=counted.denied,
        deny_rate=deny_rate(counted.allowed, counted.denied),
        last_active=time_or_none(counted.last_ts or None),
        sources=[SourceCount(each.value, each.total, each.denied) for each in sources],
        over_time=OverTime(SPAN_HOURS * 60, spans),
    )
    return AgentDetail(**agent.shown(), activity=activity)


class AgentsRequest(ListRequest):
    """Every filter but `text` is an exact match; an agent must match all that are given."""

    status: Annotated[AgentStatus | None, says("Only agents with this status.")] = None
    agent_role: Identifier | None = None
    owner: Text | None = None
    framework: Text | None = None
    text: Annotated[str, Field(min_length=1, max_length=256, pattern="^[^\\u0000]*$")] | None = (
        Field(None, description="Only agents with this in their id, name, owner or description.")
    )


async def list_agents(
    registry: Registry, caller: Caller, request: AgentsRequest
) -> Page[AgentResponse]:
    """List registered agents, newest first."""
    async with registry.store.reading(caller.tenant_id) as connection:
        rows = await queries.page(
            connection,
            caller.tenant_id,
            request.model_dump(include={*queries.FILTERS, "text"}),
            request.after(int, str),
            request.limit + 1,
        )
    return page_of(rows, request.limit, lambda row: (row.created_at, row.agent_id), shown_agent)


async def show_registry_counts(
    registry: Registry, caller: Caller, _: EmptyRequest
) -> RegistryCounts:
    """Count the registered agents by status; deny rates cover the last 7 days."""
    tenant_id = caller.tenant_id
    async with registry.store.reading(tenant_id) as connection:
        by_status = await queries.count_by_status(connection, tenant_id)
        since = registry.clock.now() - ACTIVITY_WINDOW
        recent = await counters.by_agent(connection, tenant_id, since)
    allowed, denied = sum(each.allowed for each in recent), sum(each.denied for each in recent)
    return RegistryCounts(
        total=sum(by_status.values()),
        # A status without agents is missing from the counts, and is shown as 0.
        **{status: by_status.get(status, 0) for status in MOVES},
        pending=by_status.get("pending_approval", 0),
        deny_rate=deny_rate(allowed, denied),
        deny_rates={each.value: deny_rate(each.allowed, each.denied) for each in recent},
    )


async def refuse_bad_workload(tx: Transaction, agent: StoredAgent) -> None:
    """Raise `Invalid` if the agent has a workload and is bound to a key, and `Conflict` if another
    agent has the same workload."""
    if agent.workload is None:
        return
    if agent.bound_key_id is not None:
        # Its pods hold other keys, so every one of their evaluations would be denied (check 4).
        raise invalid(["bound_key_id: must be null for an agent with a workload"])
    holder = await queries.of_workload(tx.connection, tx.tenant_id, agent.workload)
    if holder is not None and holder.agent_id != agent.agent_id:
        raise Conflict(f"the workload belongs to agent `{holder.agent_id}`")


class AgentFields(RequestModel):
    """The fields of a registry entry that may be left out."""

    display_name: Text | None = None
    description: Text | None = None
    owner: Text | None = None
    framework: Text | None = None
    permitted_roles: Roles | None = None
    credential_type: CredentialType | None = None
    bound_key_id: Identifier | None = None
    workload: Workload | None = None


class NewAgent(AgentFields):
    """The registry entry to create (`CONTRACT.md`, Agents)."""

    example: ClassVar[dict[str, Any]] = {
        "agent_id": "agt_loans",
        "agent_role": "loan_underwriter",
        "display_name": "Loan underwriting",
        "owner": "lending",
    }

    agent_role: Identifier
    agent_id: Identifier | None = None
    status: Annotated[
        Literal["draft"] | None,
        says("Only `draft` is accepted. Approve the agent in a separate step."),
    ] = None


async def register_agent(registry: Registry, caller: Caller, request: NewAgent) -> AgentResponse:
    """Register an agent as a draft; its role need not have a policy yet."""
    # Drawn once, since `work` runs again after a conflict.
    agent_id = request.agent_id or prefixed("agt_", registry.entropy(16))

    async def work(tx: Transaction) -> StoredAgent:
        if await queries.get(tx.connection, tx.tenant_id, agent_id) is not None:
            raise Conflict(f"agent `{agent_id}` is already registered")
        await refuse_unknown_key(tx, request.bound_key_id)
        # Published already as a draft: every sidecar denies a draft (`agent_not_approved`).
        agent = _draft(request, agent_id, tx.now)
        await refuse_bad_workload(tx, agent)
        await queries.add(tx.connection, tx.tenant_id, agent)
        await tx.publish(agent_documents(None, agent))
        detail = {
            "agent_role": agent.agent_role,
            "permitted_roles": list(agent.permitted_roles),
            "workload": agent.workload,
        }
        shown = agent_change(tx, None, agent)
        await registry.changes.record(tx, "agent.registered", agent_id, caller.by, detail, shown)
        return agent

    return shown_agent(await registry.store.write(caller.tenant_id, work))


def _draft(request: NewAgent, agent_id: str, now: int) -> StoredAgent:
    fields = request.model_dump() | {
        "agent_id": agent_id,
        # Empty: only the agent's own role (`CONTRACT.md`, Wildcards and empty lists).
        "permitted_roles": tuple(request.permitted_roles or ()),
        "credential_type": request.credential_type or "api_key",
        "status": "draft",
    }
    return StoredAgent(**fields, created_at=now, updated_at=now)


class ChangedAgent(AgentFields):
    """The fields to change. Fields left out keep their value; null clears a field, or resets it to
    its default if it has one."""

    example: ClassVar[dict[str, Any]] = {"owner": "lending", "framework": "langchain"}
    shown = AgentDetail

    agent_id: Identifier
    agent_role: Identifier = ""
    status: Annotated[
        AgentStatus,
        says("The agent's status as it is, or left out: it has an operation of its own."),
    ] = "draft"
    reason: Annotated[Reason | None, KEPT_REASON] = None

    def changes(self, agent: StoredAgent) -> dict[str, Any]:
        """Return the fields that the request sets, in the form in which the row stores them."""
        changes = self.model_dump(include=self.model_fields_set - {"agent_id", "status", "reason"})
        # Null resets these two to their defaults.
        if "permitted_roles" in changes:
            changes["permitted_roles"] = tuple(changes["permitted_roles"] or ())
            own = changes["permitted_roles"] == (agent.agent_role,)
            if own and not agent.permitted_roles and self.agent_role in ("", agent.agent_role):
                # A GET shows its own role for an agent that has no list. It stays without one.
                del changes["permitted_roles"]
        if "credential_type" in changes:
            changes["credential_type"] = changes["credential_type"] or "api_key"
        return changes


async def update_agent(registry: Registry, caller: Caller, request: ChangedAgent) -> AgentResponse:
    """Change an agent's registry entry, except its status."""

    async def work(tx: Transaction) -> StoredAgent:
        agent = await queries.existing(tx.connection, tx.tenant_id, request.agent_id)
        if "status" in request.model_fields_set and request.status != agent.status:
            raise invalid([f"status: is `{agent.status}`; an operation of its own changes it"])
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
        changed = with_generation(agent, changed, registry.entropy(16))
        await queries.put(tx.connection, tx.tenant_id, changed)
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
        await registry.changes.record(tx, "agent.updated", agent.agent_id, caller.by, detail, shown)
        return changed

    return shown_agent(await registry.store.write(caller.tenant_id, work))
