"""Binds a key to an agent, to roles, or to both, each field by itself (`service.md` 4.5)."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.keys import key_change
from control_api.requests.base import Identifier, RequestModel, Roles
from control_api.requests.key import AgentPatterns, SidecarPatterns
from control_api.responses.audit import Done
from control_api.store.queries import keys
from control_api.store.queries.keys import StoredKey
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound, invalid
from policies.sets.policy_set import key_document, key_name

EVERY = ("*",)


class NewBinding(RequestModel):
    """The binding. A field left out keeps its value; null or an empty list lifts a restriction.

    `agent_ids` and `sidecar_ids` are for keys of scope `sidecar`. A key can't be without
    `agent_ids`; null as `sidecar_ids` admits every id that no other live key uses.
    """

    example: ClassVar[dict[str, Any]] = {
        "bound_agent_id": "agt_loans",
        "permitted_roles": ["loan_underwriter"],
    }

    key_id: Identifier
    bound_agent_id: Identifier | None = None
    permitted_roles: Roles | None = None
    agent_ids: AgentPatterns | None = None
    sidecar_ids: SidecarPatterns | None = None


def _speaking(key: StoredKey, request: NewBinding) -> StoredKey:
    """The key with the agents and sidecars that the request names. Raises `Invalid`."""
    given = request.model_fields_set & {"agent_ids", "sidecar_ids"}
    if not given:
        return key
    if key.scope != "sidecar":
        raise invalid([f"{name}: only a key of scope `sidecar` has it" for name in sorted(given)])
    agent_ids = key.agent_ids or EVERY
    # A key from before has every sidecar too, until the request says otherwise.
    sidecar_ids = EVERY if key.agent_ids is None else key.sidecar_ids
    if "agent_ids" in given:
        if request.agent_ids is None:
            raise invalid(['agent_ids: can\'t be lifted; `["*"]` is every agent'])
        agent_ids = tuple(request.agent_ids)
    if "sidecar_ids" in given:
        sidecar_ids = None if request.sidecar_ids is None else tuple(request.sidecar_ids)
    return replace(key, agent_ids=agent_ids, sidecar_ids=sidecar_ids)


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
        bound = _speaking(bound, request)
        if bound == key:
            return  # no log entry, no new revision: sidecars have nothing to fetch
        if bound.bound_agent_id != key.bound_agent_id:
            await keys.add_former_agent(tx.connection, tx.tenant_id, key)
        await keys.bind(tx.connection, tx.tenant_id, bound)
        await tx.publish({key_name(key.digest): key_document(bound.published())})
        detail = {
            "bound_agent_id": bound.bound_agent_id,
            "permitted_roles": list(bound.permitted_roles),
            **_spoken(bound),
        }
        change = key_change(tx, key, bound)
        await app.log_change(tx, "key.bound", key.key_id, caller.by, detail, change)

    await app.store.write(caller.tenant_id, work)
    return Done()


def _spoken(key: StoredKey) -> dict[str, list[str] | None]:
    """For which agents and as which sidecars the key speaks, as the log shows it."""
    if key.agent_ids is None:
        return {}
    sidecar_ids = None if key.sidecar_ids is None else list(key.sidecar_ids)
    return {"agent_ids": list(key.agent_ids), "sidecar_ids": sidecar_ids}
