"""Finds which agent owns a document of the policy set whose name doesn't show it: the document of a
key or of a revoked session."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.documents import StoredDocument
from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import api_keys, documents, sessions
from policies.definitions.model import Agent, Scope
from policies.sets.policy_set import CANDIDATE, KEY, SESSION, agent_name, key_name, session_name


class KeyOwner(NamedTuple):
    """The agent that a key is bound to, or None if it is bound to none. `former` are the agents
    that it was bound to before, with None for a time when it was bound to none."""

    scope: Scope
    agent_id: str | None
    former: tuple[str | None, ...]


class Owners(NamedTuple):
    """The owners of documents, by document name: of a key its `KeyOwner`, of a session its agent. A
    document is missing here if its key or session is not in the database."""

    keys: Mapping[str, KeyOwner]
    sessions: Mapping[str, str | None]


async def owners_of(connection: AsyncConnection, tenant_id: str, names: Iterable[str]) -> Owners:
    """Return the owners of those documents among `names` that are about a key or a session."""
    listed = list(names)
    digests = [_digest(name) for name in listed if name.startswith(KEY)]
    ids = [name.removeprefix(SESSION) for name in listed if name.startswith(SESSION)]
    keys: dict[str, KeyOwner] = {}
    fields = ("digest", "scope", "bound_agent_id", "former_agents")
    columns = [api_keys.c[name] for name in fields]
    for some in chunks([each for each in digests if each is not None]):
        query = select(*columns).where(of_tenant(api_keys, tenant_id), api_keys.c.digest.in_(some))
        for digest, scope, agent_id, former in await connection.execute(query):
            before = () if former is None else tuple(orjson.loads(former))
            keys[key_name(digest)] = KeyOwner(scope, agent_id, before)
    owners: dict[str, str | None] = {}
    for part in chunks(ids):
        of = select(sessions.c.session_id, sessions.c.agent_id).where(
            of_tenant(sessions, tenant_id), sessions.c.session_id.in_(part)
        )
        owners |= {
            session_name(row.session_id): row.agent_id for row in await connection.execute(of)
        }
    return Owners(keys, owners)


async def agent_of(
    connection: AsyncConnection, tenant_id: str, agent_id: str
) -> tuple[int, tuple[str, ...]]:
    """Return the revision of an agent's document, and the roles that the agent may act in. Return 0
    and no roles if there is no document."""
    query = select(documents.c.revision, documents.c.body).where(
        of_tenant(documents, tenant_id), documents.c.name == agent_name(agent_id)
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return 0, ()
    roles = () if row.body is None else Agent.from_wire(orjson.loads(row.body)).permitted_roles
    return row.revision, roles


async def keys_for(
    connection: AsyncConnection, tenant_id: str, agent_id: str, scopes: Iterable[str]
) -> list[str]:
    """Return the document names of the unrevoked keys that have one of these scopes and are bound
    to the agent, or to no agent."""
    query = select(api_keys.c.digest).where(
        of_tenant(api_keys, tenant_id),
        api_keys.c.revoked_at.is_(None),
        api_keys.c.scope.in_(list(scopes)),
        api_keys.c.bound_agent_id.is_(None) | (api_keys.c.bound_agent_id == agent_id),
    )
    return [key_name(digest) for digest in (await connection.execute(query)).scalars()]


async def named(
    connection: AsyncConnection, tenant_id: str, names: Sequence[str]
) -> list[StoredDocument]:
    """Return the documents with these names that exist, in order of revision."""
    found: list[StoredDocument] = []
    columns = (documents.c.name, documents.c.revision, documents.c.digest, documents.c.body)
    for some in chunks(names):
        query = select(*columns).where(
            of_tenant(documents, tenant_id),
            documents.c.name.in_(some),
            documents.c.body.is_not(None),
        )
        found += [StoredDocument(*row) for row in await connection.execute(query)]
    return sorted(found, key=lambda document: document.revision)


async def listed(connection: AsyncConnection, tenant_id: str) -> list[str]:
    """Return the names of the existing documents of candidates and of revoked sessions."""
    found: list[str] = []
    for prefix in (CANDIDATE, SESSION):
        # The last letter's successor, as in `documents.names_after`: the primary key finds these.
        beyond = prefix[:-2] + chr(ord(prefix[-2]) + 1)
        query = select(documents.c.name).where(
            of_tenant(documents, tenant_id),
            documents.c.name > prefix,
            documents.c.name < beyond,
            func.substr(documents.c.name, 1, len(prefix)) == prefix,
            documents.c.body.is_not(None),
        )
        found += (await connection.execute(query)).scalars()
    return found


def _digest(name: str) -> bytes | None:
    try:
        return bytes.fromhex(name.removeprefix(KEY))
    except ValueError:
        return None
