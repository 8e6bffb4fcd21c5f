"""Tie a key to an agent, or to roles (`service.md` 4.5): two fields, each by itself."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Identifier, RequestModel, Roles
from control_api.responses.audit import Done
from control_api.store.queries import keys
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound
from policies.sets.policy_set import key_document, key_name
from policies.trail.record import change_record


class NewBinding(RequestModel):
    """What is left out stays; null clears. An empty list restricts nothing."""

    example: ClassVar[dict[str, Any]] = {
        "bound_agent_id": "agt_loans",
        "permitted_roles": ["loan_underwriter"],
    }

    key_id: Identifier
    bound_agent_id: Identifier | None = None
    permitted_roles: Roles | None = None


async def bind_key(service: AppContext, caller: Caller, asked: NewBinding) -> Done:
    """Bind a key to an agent, to roles, or to neither; in force when the answer leaves."""

    async def work(tx: Transaction) -> None:
        key = await keys.get(tx.connection, tx.tenant_id, asked.key_id)
        if key is None:
            raise NotFound(f"no such key: `{asked.key_id}`")
        bound = key
        if "bound_agent_id" in asked.model_fields_set:
            bound = replace(bound, bound_agent_id=asked.bound_agent_id)
        if "permitted_roles" in asked.model_fields_set:
            bound = replace(bound, permitted_roles=tuple(asked.permitted_roles or ()))
        if bound == key:
            return
        await keys.bind(tx.connection, tx.tenant_id, bound)
        await tx.publish({key_name(key.digest): key_document(bound.published())})
        detail = {
            "bound_agent_id": bound.bound_agent_id,
            "permitted_roles": list(bound.permitted_roles),
        }
        record_id = service.new_id()
        await tx.append(
            change_record("key.bound", key.key_id, caller.by, detail, record_id=record_id)
        )

    await service.store.write(caller.tenant.tenant_id, work)
    return Done()
