"""Says who may read a source, or what a role may read."""

import orjson
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.analyses import here
from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.requests.base import Flag, Identifier, RequestModel
from control_api.responses.access import PolicyAccess
from control_api.responses.audit import Document
from control_api.store.queries import documents, enrolled_keys
from policies.definitions.model import Sensitivity
from policies.ground.errors import invalid
from policies.sets.policy_set import ROLE, TENANT, role_name

AGENT = "agent/"
KEY = "key/"


class AccessRequest(RequestModel):
    """The source or the role that the question is about, or both; the rest narrows it."""

    source_id: Identifier | None = None
    agent_role: Identifier | None = None
    agent_id: Identifier | None = None
    task: Identifier | None = None
    level: Sensitivity | None = None
    policies_only: Flag = Field(
        False,
        description="Leave agents and keys out: what policies allow once an agent is approved.",
    )


@ends_with_client
async def show_access(
    app: AppContext, caller: Caller, request: AccessRequest
) -> PolicyAccess | Document:
    """Say exactly who may read a source, or what a role may read, now.

    A request counts as allowed if an evaluation with some live key of the tenant allows it: the
    agent's status and roles, its binding and those of the keys, and `require_agent_id` all count.
    Sessions and a freeze do not, nor the levels that the tenant or a sidecar's settings state of
    sources: a level here is the one that a request is decided at. `source_id` and `agent_id` may
    be patterns. With `policies_only`, say what the policies allow whether or not the agent is
    registered and has a key.
    """
    if request.source_id is None and request.agent_role is None:
        raise invalid(["source_id: is required, or agent_role"], "query")
    now = app.clock.now()
    if request.policies_only:
        return Document("application/json", await _by_policies(app, caller.tenant_id, request))
    async with app.store.snapshot(caller.tenant_id) as connection:
        parts = await _documents(connection, caller.tenant_id, request.agent_role, now)
    options = {**_options(request), "now": now}
    body = await app.analyses.answer(caller.tenant_id, Job("access", options, parts))
    return Document("application/json", body)


async def _by_policies(app: AppContext, tenant_id: str, request: AccessRequest) -> bytes:
    only = None if request.agent_role is None else role_name(request.agent_role)
    async with app.store.snapshot(tenant_id) as connection:
        roles = await documents.array_of(
            connection, tenant_id, only or ROLE, exactly=only is not None
        )
    job = Job("access_by_policies", _options(request), (roles,))
    return await here.answer(app.analyses, tenant_id, job)


def _options(request: AccessRequest) -> dict[str, str | None]:
    return {
        "source": request.source_id,
        "agent": request.agent_id,
        "task": request.task,
        "level": request.level,
    }


async def _documents(
    connection: AsyncConnection, tenant_id: str, role: str | None, now: int
) -> list[bytes]:
    """What is in force: arrays of the documents of roles, agents and keys, the keys of enrolled
    pods, and the tenant's own document."""
    only = None if role is None else role_name(role)
    enrolled = await enrolled_keys.of_live_agents(connection, tenant_id, now)
    return [
        await documents.array_of(connection, tenant_id, only or ROLE, exactly=only is not None),
        await documents.array_of(connection, tenant_id, AGENT),
        await documents.array_of(connection, tenant_id, KEY),
        orjson.dumps(enrolled),
        await documents.array_of(connection, tenant_id, TENANT, exactly=True),
    ]
