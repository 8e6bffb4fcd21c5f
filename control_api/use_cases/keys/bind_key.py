"""Binds a key to an agent, to roles, or to both, each field by itself (`service.md` 4.5)."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import key_change
from control_api.requests.base import Identifier, RequestModel, Roles
from control_api.responses.audit import Done
from control_api.store.queries import keys
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound
from policies.sets.policy_set import key_document, key_name


class NewBinding(RequestModel):
    """The binding. A field left out keeps its value; null or an empty list lifts a restriction."""

    example: ClassVar[dict[str, Any]] = {
        "bound_agent_id": "agt_loans",
        "permitted_roles": ["loan_underwriter"],
    }

    key_id: Identifier
    bound_agent_id: Identifier | None = None
    permitted_roles: Roles | None = None


async def bind_key(app: AppContext, caller: Caller, request: NewBinding) -> Done:
    """Bind a key to an agent or to roles, or unbind it; in force before the response is sent."""

    async def work(tx: Transaction) -> None:
        key = await keys.get(tx.connection, tx.tenant_id, request.key_id)
        if key is None:
            raise NotFound(f"no such key: `{request.key_id}`")
        bound = key
        if "bound_agent_id" in request.model_fields_set:
            bound = replace(bound, bound_agent_id=request.bound_agent_id)
        if "permitted_roles" in request.model_fields_set:
            bound = replace(bound, permitted_roles=tuple(request.permitted_roles or ()))
        if bound == key:
            return  # no log entry, no new revision: sidecars have nothing to fetch
        await keys.bind(tx.connection, tx.tenant_id, bound)
        await tx.publish({key_name(key.digest): key_document(bound.published())})
        detail = {
            "bound_agent_id": bound.bound_agent_id,
            "permitted_roles": list(bound.permitted_roles),
        }
        change = key_change(tx, key, bound)
        await app.log_change(tx, "key.bound", key.key_id, caller.by, detail, change)

    await app.store.write(caller.tenant_id, work)
    return Done()
