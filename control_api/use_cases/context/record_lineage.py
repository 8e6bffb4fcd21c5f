"""Record what followed from a decision (`service.md` 4.2): an entry of the same log."""

from typing import Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.requests.base import Identifier, RequestModel, Text
from control_api.responses.audit import Empty
from policies.definitions.model import Key
from policies.ground.errors import Forbidden
from policies.sets.policy_set import TENANT
from policies.trail.record import lineage_record


class NewAction(RequestModel):
    """A downstream action (`service.md` 2.5)."""

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


async def record_lineage(service: AppContext, caller: Caller, asked: NewAction) -> Empty:
    """Record a downstream action on an audit event of this tenant."""
    tenant_id = caller.tenant.tenant_id
    found = await read.event(service.store, tenant_id, asked.event_id)
    _refuse_unbound(caller.key, found.event)
    await caller.tenant.need((TENANT,))
    record = lineage_record(
        asked.event_id,
        found.leaf_hash,
        asked.action_type,
        asked.detail,
        asked.outcome,
        record_id=service.new_id(),
        salt=service.entropy(32),
        masking=caller.tenant.policy_set.masks(),
    )
    await service.log.append(tenant_id, record)
    return Empty()


def _refuse_unbound(key: Key, event: dict[str, Any]) -> None:
    """A bound key speaks for its agent and roles alone (contract, section 2)."""
    if key.bound_agent_id is not None and event["agent_id"] != key.bound_agent_id:
        raise Forbidden(f"the key is bound to agent `{key.bound_agent_id}`; the event is another's")
    if key.permitted_roles and event["agent_role"] not in key.permitted_roles:
        raise Forbidden("the key's roles do not include that of the event")
