"""Records a downstream action on an audit event, as an entry of the same log (`CONTRACT.md`,
Lineage)."""

from typing import Any, ClassVar

from pydantic import Field

from control_api.auth.principal import Caller
from control_api.decisions.bundle import Decisions
from control_api.departure import until_departed
from control_api.edge.answers import Empty
from control_api.edge.requests import Identifier, RequestModel, Text
from control_api.log import read
from control_api.metrics.labels import Foreign
from policies.definitions.model import Key
from policies.ground.errors import Forbidden
from policies.sets.policy_set import TENANT
from policies.trail.lineage import ReportedAction, lineage_record, masked_texts


class NewAction(RequestModel):
    """The downstream action to record (`CONTRACT.md`, Lineage)."""

    example: ClassVar[dict[str, Any]] = {
        "event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
        "action_type": "summary_sent",
        "detail": {"channel": "email"},
        "outcome": "completed",
    }

    event_id: Identifier
    action_type: Identifier
    detail: dict[str, Any] = Field(default_factory=dict)
    outcome: Text | None = None


async def record_lineage(decisions: Decisions, caller: Caller, request: NewAction) -> Empty:
    """Record a downstream action on an audit event of this tenant."""
    tenant_id = caller.tenant_id
    found = await read.event(decisions.store, tenant_id, request.event_id)
    bound, agent_id = caller.key.bound_agent_id, found.event["agent_id"]
    if bound is not None and agent_id != bound:
        await decisions.isolation.record(caller, Foreign.agent, agent_id, "record_lineage")
    _refuse_unbound(caller.key, found.event)
    # The tenant's document says whether to mask personal data in the record.
    await caller.tenant.need((TENANT,))
    # The event's leaf hash ties the action to exactly that entry of the log.
    action = ReportedAction(
        request.event_id, found.leaf_hash, request.action_type, request.detail, request.outcome
    )
    masking = caller.tenant.policy_set.masks()
    masked = None
    if masking:
        async with until_departed():
            masked = await masked_texts(decisions.masking, action)
        await caller.require_live(decisions.clock.now())  # that may have taken seconds
    record = lineage_record(
        action, record_id=decisions.changes.new_id(), salt=decisions.entropy(32), masked=masked
    )
    await decisions.log.append(tenant_id, record)
    return Empty()


def _refuse_unbound(key: Key, event: dict[str, Any]) -> None:
    """Raise `Forbidden` if the key's binding excludes the event's agent or role (`CONTRACT.md`,
    Lineage)."""
    if key.bound_agent_id is not None and event["agent_id"] != key.bound_agent_id:
        raise Forbidden(
            f"the key is bound to agent `{key.bound_agent_id}`, not to the event's agent"
        )
    if key.permitted_roles and event["agent_role"] not in key.permitted_roles:
        raise Forbidden("the key's roles do not include the event's")
