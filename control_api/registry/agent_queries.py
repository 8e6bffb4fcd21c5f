"""Queries over the agent registry. Does not know which changes of status are allowed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from sqlalchemy import RowMapping, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.statements import (
    Position,
    columns_of,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import agents
from policies.definitions.model import Agent, AgentStatus
from policies.ground.canonical import encode, rfc3339

CredentialType = Literal["api_key", "jwt_oidc", "mtls", "conjur"]


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """A row of the agent registry (`CONTRACT.md`, Agents). Times are in microseconds."""

    agent_id: str
    agent_role: str
    display_name: str | None
    description: str | None
    owner: str | None
    framework: str | None
    permitted_roles: tuple[str, ...]
    credential_type: CredentialType
    bound_key_id: str | None
    status: AgentStatus
    created_at: int
    updated_at: int
    workload: str | None = None
    enrolment: str | None = None

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredAgent":
        return cls(**{**row, "permitted_roles": tuple(orjson.loads(row["permitted_roles"]))})

    def published(self) -> Agent:
        """The part that a decision needs. An empty list of roles means the agent's own role
        (`CONTRACT.md`, Wildcards and empty lists)."""
        roles = self.permitted_roles or (self.agent_role,)
        if self.agent_role in roles:
            # First, so that a sidecar knows the role of a question that names none.
            roles = tuple(dict.fromkeys((self.agent_role, *roles)))
        return Agent(self.agent_id, self.status, roles, self.bound_key_id)

    def shown(self) -> dict[str, Any]:
        """The fields of `AgentResponse`, as the API shows them."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "enrolment"}
        return {
            **fields,
            # An agent without permitted roles may claim only its own role.
            "permitted_roles": list(self.permitted_roles or (self.agent_role,)),
            "created_at": rfc3339(self.created_at),
            "updated_at": rfc3339(self.updated_at),
        }


_COLUMNS = columns_of(agents)
FILTERS = ("status", "agent_role", "owner", "framework")
SEARCHED = ("agent_id", "display_name", "owner", "description")


async def get(connection: AsyncConnection, tenant_id: str, agent_id: str) -> StoredAgent | None:
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id), agents.c.agent_id == agent_id)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else StoredAgent.from_row(row)


async def of_workload(
    connection: AsyncConnection, tenant_id: str, workload: str
) -> StoredAgent | None:
    """The agent that the pods of `workload` enrol as."""
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id), agents.c.workload == workload)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else StoredAgent.from_row(row)


async def count_pending(connection: AsyncConnection, tenant_id: str) -> int:
    """How many agents with a workload wait for approval."""
    query = select(func.count()).where(
        of_tenant(agents, tenant_id),
        agents.c.workload.is_not(None),
        agents.c.status.in_(("draft", "pending_approval")),
    )
    return int((await connection.execute(query)).scalar_one())


async def add(connection: AsyncConnection, tenant_id: str, agent: StoredAgent) -> None:
    await connection.execute(insert(agents).values(tenant_id=tenant_id, **_values(agent)))


async def page(
    connection: AsyncConnection,
    tenant_id: str,
    filters: Mapping[str, str | None],
    after: Position | None,
    limit: int,
) -> list[StoredAgent]:
    """A page of agents, newest first, after `(created_at, agent_id)`. `filters` maps names in
    `FILTERS` to the value that an agent must have, or to None for any value; `text` is what one of
    `SEARCHED` has to contain, in any case of letters."""
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id))
    for name in FILTERS:
        if (value := filters.get(name)) is not None:
            query = query.where(agents.c[name] == value)
    if (text := filters.get("text")) is not None:
        query = query.where(
            or_(*(agents.c[name].icontains(text, autoescape=True) for name in SEARCHED))
        )
    query = newest_first(query, agents.c.created_at, agents.c.agent_id, after, limit)
    return [StoredAgent.from_row(row) for row in (await connection.execute(query)).mappings()]


async def count_by_status(connection: AsyncConnection, tenant_id: str) -> dict[str, int]:
    query = (
        select(agents.c.status, func.count())
        .where(of_tenant(agents, tenant_id))
        .group_by(agents.c.status)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}


async def bound_to(connection: AsyncConnection, tenant_id: str, key_id: str) -> list[StoredAgent]:
    """The agents that are bound to this key: no other key may act for them."""
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id), agents.c.bound_key_id == key_id)
    return [StoredAgent.from_row(row) for row in (await connection.execute(query)).mappings()]


async def put(connection: AsyncConnection, tenant_id: str, agent: StoredAgent) -> None:
    """Replaces the row of the same id."""
    await connection.execute(
        update(agents)
        .where(of_tenant(agents, tenant_id), agents.c.agent_id == agent.agent_id)
        .values(**_values(agent))
    )


def _values(agent: StoredAgent) -> dict[str, Any]:
    return {**values_of(agent), "permitted_roles": encode(list(agent.permitted_roles))}
