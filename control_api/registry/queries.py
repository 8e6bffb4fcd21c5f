"""Queries the agent registry, and the table that says which key uses which sidecar id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import Connection, RowMapping, Select, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.sidecar_rows import StoredSidecar
from control_api.store.schema.statements import (
    Position,
    columns_of,
    insert_if_absent,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import agents, api_keys, documents, sidecar_owners, sidecars
from policies.definitions.model import Agent, AgentStatus
from policies.ground.canonical import encode, rfc3339
from policies.ground.errors import NotFound
from policies.sets.policy_set import enrolment_name

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
        """Return the part of the agent that decisions depend on. An empty list of roles means the
        agent's own role (`CONTRACT.md`, Wildcards and empty lists)."""
        roles = self.permitted_roles or (self.agent_role,)
        if self.agent_role in roles:
            # First, so that a sidecar knows the role of a question that names none.
            roles = tuple(dict.fromkeys((self.agent_role, *roles)))
        return Agent(self.agent_id, self.status, roles, self.bound_key_id)

    def shown(self) -> dict[str, Any]:
        """Return the agent's fields as the API shows them in an `AgentResponse`."""
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


async def _agents(connection: AsyncConnection, query: Select[Any]) -> list[StoredAgent]:
    return [StoredAgent.from_row(row) for row in (await connection.execute(query)).mappings()]


async def get(connection: AsyncConnection, tenant_id: str, agent_id: str) -> StoredAgent | None:
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id), agents.c.agent_id == agent_id)
    return next(iter(await _agents(connection, query)), None)


async def existing(connection: AsyncConnection, tenant_id: str, agent_id: str) -> StoredAgent:
    """Return the agent. Raise `NotFound` if there is none with this id."""
    if (agent := await get(connection, tenant_id, agent_id)) is None:
        raise NotFound(f"no such agent: `{agent_id}`")
    return agent


async def of_workload(
    connection: AsyncConnection, tenant_id: str, workload: str
) -> StoredAgent | None:
    """Return the agent as which the pods of `workload` enrol, or None if there is none."""
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id), agents.c.workload == workload)
    return next(iter(await _agents(connection, query)), None)


async def count_pending(connection: AsyncConnection, tenant_id: str) -> int:
    """Return the number of agents with a workload that wait for approval."""
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
    """Return a page of agents, newest first, that begins after the position `(created_at,
    agent_id)`. `filters` maps names in `FILTERS` to the value that an agent must have, or to None
    for any value. Its `text` is a substring, in upper or lower case, that one of the fields in
    `SEARCHED` must contain."""
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id))
    for name in FILTERS:
        if (value := filters.get(name)) is not None:
            query = query.where(agents.c[name] == value)
    if (text := filters.get("text")) is not None:
        query = query.where(
            or_(*(agents.c[name].icontains(text, autoescape=True) for name in SEARCHED))
        )
    query = newest_first(query, agents.c.created_at, agents.c.agent_id, after, limit)
    return await _agents(connection, query)


async def count_by_status(connection: AsyncConnection, tenant_id: str) -> dict[str, int]:
    query = (
        select(agents.c.status, func.count())
        .where(of_tenant(agents, tenant_id))
        .group_by(agents.c.status)
    )
    return {row[0]: row[1] for row in await connection.execute(query)}


async def bound_to(connection: AsyncConnection, tenant_id: str, key_id: str) -> list[StoredAgent]:
    """Return the agents that are bound to this key, for which no other key may act."""
    query = select(*_COLUMNS).where(of_tenant(agents, tenant_id), agents.c.bound_key_id == key_id)
    return await _agents(connection, query)


async def put(connection: AsyncConnection, tenant_id: str, agent: StoredAgent) -> None:
    """Update the row of the agent with the same id."""
    await connection.execute(
        update(agents)
        .where(of_tenant(agents, tenant_id), agents.c.agent_id == agent.agent_id)
        .values(**_values(agent))
    )


def _values(agent: StoredAgent) -> dict[str, Any]:
    return {**values_of(agent), "permitted_roles": encode(list(agent.permitted_roles))}


POD_OWNER_PREFIX = "agent/"
"""The prefix of an owner that stands for all enrolled pods of an agent; the agent's id follows. A
pod gets a new key every half hour, so no single key can be the owner of its sidecar id."""
FORGOTTEN_AT_ONCE = 1000
"""The most sidecar ids that one transaction deletes: on SQLite, evaluations wait for it."""
KEY_REVOKED = "key revoked"
"""The reason that is shown for a sidecar whose key was revoked."""
SHOWN = 100
"""The most sidecar ids that are listed for one owner."""


def owner_of(connection: Connection, tenant_id: str, sidecar_id: str) -> str | None:
    query = select(sidecar_owners.c.owner).where(
        of_tenant(sidecar_owners, tenant_id), sidecar_owners.c.sidecar_id == sidecar_id
    )
    owner: str | None = connection.execute(query).scalar_one_or_none()
    return owner


class IdClaimant(NamedTuple):
    """A key that wants to use a sidecar id: the name of the owner that it belongs to, and the
    agents that it may speak for."""

    owner: str
    agent_ids: tuple[str, ...] | None


def claim_sidecar_id(
    connection: Connection, tenant_id: str, sidecar_id: str, claimant: IdClaimant, now: int
) -> bool:
    """Make `claimant` the owner of this sidecar id, unless another owner that is live at `now`
    (microseconds) holds it. Return whether `claimant` owns it now."""
    owner = claimant.owner
    values = {"tenant_id": tenant_id, "sidecar_id": sidecar_id, "owner": owner, "since": now}
    connection.execute(insert_if_absent(sidecar_owners, connection.dialect), values)
    present = owner_of(connection, tenant_id, sidecar_id)
    if present == owner:
        return True
    if present is not None and _keeps_id(connection, tenant_id, present, claimant, now):
        return False
    # Of two that take the id of a dead key at the same time, one finds the row changed.
    done = connection.execute(
        update(sidecar_owners)
        .where(
            of_tenant(sidecar_owners, tenant_id),
            sidecar_owners.c.sidecar_id == sidecar_id,
            sidecar_owners.c.owner == present,
        )
        .values(owner=owner, since=now)
    )
    return done.rowcount == 1


def _keeps_id(
    connection: Connection, tenant_id: str, present: str, claimant: IdClaimant, now: int
) -> bool:
    """Return whether the present owner keeps the sidecar id, so that `claimant` can't have it."""
    if present.startswith(POD_OWNER_PREFIX):
        agent_id = present.removeprefix(POD_OWNER_PREFIX)
        pods = select(documents.c.name).where(
            of_tenant(documents, tenant_id),
            documents.c.name == enrolment_name(agent_id),
            documents.c.body.is_not(None),
        )
        return claimant.agent_ids != (agent_id,) and connection.execute(pods).first() is not None
    query = select(api_keys.c.agent_ids).where(
        of_tenant(api_keys, tenant_id),
        api_keys.c.key_id == present,
        api_keys.c.revoked_at.is_(None),
        api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > now),
    )
    row = connection.execute(query).first()
    # A key is often replaced by a second one for the same agents before it is revoked, and the
    # records of a sidecar that goes on with the new one must not count as forged. A key from before
    # keys had agents is replaced by one for fewer, and can be locked out of no id.
    if row is None or row.agent_ids is None:
        return False
    return tuple(orjson.loads(row.agent_ids)) != claimant.agent_ids


async def used_by(connection: AsyncConnection, tenant_id: str, owner: str) -> list[str]:
    """Return the sidecar ids that this owner uses, sorted, at most `SHOWN`."""
    query = (
        select(sidecar_owners.c.sidecar_id)
        .where(of_tenant(sidecar_owners, tenant_id), sidecar_owners.c.owner == owner)
        .order_by(sidecar_owners.c.sidecar_id)
        .limit(SHOWN)
    )
    return list((await connection.execute(query)).scalars())


async def refused_for_key(
    connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredSidecar]
) -> list[StoredSidecar]:
    """Return the sidecars, with the reason in `refusing` for those whose key was revoked and whose
    id no other key has taken since. Such a sidecar can't report that itself, because its reports
    are refused."""
    query = (
        select(sidecar_owners.c.sidecar_id)
        .join(
            api_keys,
            of_tenant(api_keys, sidecar_owners.c.tenant_id)
            & (api_keys.c.key_id == sidecar_owners.c.owner),
        )
        .where(
            of_tenant(sidecar_owners, tenant_id),
            sidecar_owners.c.sidecar_id.in_([row.sidecar_id for row in rows]),
            api_keys.c.revoked_at.is_not(None),
        )
    )
    revoked = set((await connection.execute(query)).scalars())
    return [
        replace(row, refusing=KEY_REVOKED) if row.sidecar_id in revoked else row for row in rows
    ]


def forget(connection: Connection, tenant_id: str, before: int) -> int:
    """Delete the owners of sidecar ids that were taken before the time `before` (microseconds) and
    whose sidecars are not listed, at most `FORGOTTEN_AT_ONCE`. Return the number of deleted
    rows."""
    listed = select(sidecars.c.sidecar_id).where(of_tenant(sidecars, tenant_id))
    due = (
        of_tenant(sidecar_owners, tenant_id),
        sidecar_owners.c.since < before,
        sidecar_owners.c.sidecar_id.not_in(listed),
    )
    some = select(sidecar_owners.c.sidecar_id).where(*due).limit(FORGOTTEN_AT_ONCE)
    # The conditions again: an id may have been taken anew between the two.
    done = connection.execute(
        delete(sidecar_owners).where(*due, sidecar_owners.c.sidecar_id.in_(some))
    )
    return done.rowcount
