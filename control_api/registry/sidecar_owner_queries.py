"""Queries over which key uses which sidecar id. Does not know what that permits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import orjson
from sqlalchemy import Connection, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.sidecar_rows import StoredSidecar
from control_api.store.schema.statements import insert_if_absent, of_tenant
from control_api.store.schema.tables import api_keys, documents, sidecar_owners, sidecars
from policies.sets.policy_set import enrolment_name

OF_PODS = "agent/"
"""Begins the owner of the ids that an agent's enrolled pods use; what follows is the agent's id. A
pod gets a new key every half hour, so no single key is the owner."""
FORGOTTEN_AT_ONCE = 1000
"""The most ids that one transaction forgets: on SQLite, evaluations wait for it."""
KEY_REVOKED = "key revoked"
"""Why a sidecar refuses whose own key was revoked."""
SHOWN = 100
"""The most sidecars that are listed for one owner."""


def owner_of(connection: Connection, tenant_id: str, sidecar_id: str) -> str | None:
    query = select(sidecar_owners.c.owner).where(
        of_tenant(sidecar_owners, tenant_id), sidecar_owners.c.sidecar_id == sidecar_id
    )
    owner: str | None = connection.execute(query).scalar_one_or_none()
    return owner


class Taker(NamedTuple):
    """Who wants an id: its owner's name, and the agents that its key speaks for."""

    owner: str
    agent_ids: tuple[str, ...] | None


def take(connection: Connection, tenant_id: str, sidecar_id: str, taker: Taker, now: int) -> bool:
    """Makes `taker` the one that uses this id, unless another that is live at `now` (microseconds)
    holds it. Returns whether `taker` has it now."""
    owner = taker.owner
    values = {"tenant_id": tenant_id, "sidecar_id": sidecar_id, "owner": owner, "since": now}
    connection.execute(insert_if_absent(sidecar_owners, connection.dialect), values)
    present = owner_of(connection, tenant_id, sidecar_id)
    if present == owner:
        return True
    if present is not None and _holds(connection, tenant_id, present, taker, now):
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


def _holds(connection: Connection, tenant_id: str, present: str, taker: Taker, now: int) -> bool:
    """Whether the present owner keeps its id from `taker`."""
    if present.startswith(OF_PODS):
        agent_id = present.removeprefix(OF_PODS)
        pods = select(documents.c.name).where(
            of_tenant(documents, tenant_id),
            documents.c.name == enrolment_name(agent_id),
            documents.c.body.is_not(None),
        )
        return taker.agent_ids != (agent_id,) and connection.execute(pods).first() is not None
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
    return tuple(orjson.loads(row.agent_ids)) != taker.agent_ids


async def used_by(connection: AsyncConnection, tenant_id: str, owner: str) -> list[str]:
    """The sidecar ids that this owner uses, in order, at most `SHOWN`."""
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
    """The sidecars, with `refusing` for those whose key was revoked, if no other key has their id
    since: they can't say so by themselves, as their reports are refused."""
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
    """Deletes what was taken before this time (microseconds) by sidecars that are not listed, at
    most `FORGOTTEN_AT_ONCE`. Returns how many."""
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
