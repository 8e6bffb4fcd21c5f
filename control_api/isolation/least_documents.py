"""Says which documents of the policy set an enrolled sidecar is given.

    tenant, sources                 every sidecar
    agent/…, enrolment/…            its own agent's
    role/…, candidate/<name>/…      those of a role that its agent may act in
    key/…                           one that callers use, of its agent or of none
    session/…                       a revoked session of its agent

INVARIANT: the rest does not exist for it, and it decides as if it had it: calls that name another
agent are denied before any of its documents is looked at, and a role that the agent may not act in
is not cited. Pure.
"""

from typing import NamedTuple

from control_api.store.queries.document_owners import Owners
from control_api.store.queries.documents import StoredDocument
from policies.sets.policy_set import (
    CANDIDATE,
    KEY,
    ROLE,
    SESSION,
    TENANT,
    agent_name,
    enrolment_name,
)
from policies.sets.source_levels import SOURCES

CALLERS = ("evaluate", "read", "admin")
"""The scopes of keys that a sidecar's callers present."""


class Reader(NamedTuple):
    """An agent whose sidecar asks, and the roles that the agent may act in."""

    agent_id: str
    roles: frozenset[str]


def given(document: StoredDocument, reader: Reader, owners: Owners) -> StoredDocument | None:
    """The document as the reader is given it: as removed, if it was the reader's and no longer is;
    None if the reader is told nothing of it."""
    name = document.name
    if name in (TENANT, SOURCES, agent_name(reader.agent_id), enrolment_name(reader.agent_id)):
        return document
    if name.startswith(KEY):
        return _given_key(document, reader, owners)
    if name.startswith(SESSION):
        return document if owners.sessions.get(name) == reader.agent_id else None
    role = role_of(name)
    return document if role is not None and role in reader.roles else None


def role_of(name: str) -> str | None:
    """The role that this is a document of; None for other documents."""
    if name.startswith(ROLE):
        return name.removeprefix(ROLE)
    if name.startswith(CANDIDATE):
        return name.removeprefix(CANDIDATE).partition("/")[2]
    return None


def _given_key(document: StoredDocument, reader: Reader, owners: Owners) -> StoredDocument | None:
    owner = owners.keys.get(document.name)
    if owner is None or owner.scope not in CALLERS:
        return None
    if owner.agent_id in (None, reader.agent_id):
        return document
    # A sidecar that was given the key must forget it, or the key would go on as it was bound.
    if None in owner.former or reader.agent_id in owner.former:
        return document._replace(digest=None, body=None)
    return None
