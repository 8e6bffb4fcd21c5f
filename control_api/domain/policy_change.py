"""The steps that every change of a policy shares: a version in the history, an entry in the log,
and new documents for the affected roles. Knows no operation and no file."""

import hashlib
from collections.abc import Iterable, Sequence

from control_api.app_context import AppContext
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.definitions.model import Policy
from policies.ground.canonical import encode
from policies.ground.errors import Conflict, NotFound
from policies.sets.policy_set import role_document, role_name

# Every sidecar that decides for a role holds all of the role's policies in memory.
MAX_DOCUMENT = 1024 * 1024
"""The maximum size in bytes of a role's document, which holds all of its policies."""

_CHUNK = 500  # names in one statement


def active_policy(policy: StoredPolicy | None, policy_id: str) -> StoredPolicy:
    """The policy; `NotFound` if it does not exist or was deleted."""
    if policy is None or policy.deleted_at is not None:
        raise NotFound(f"no such policy: `{policy_id}`")
    return policy


async def refuse_taken(tx: Transaction, name: str) -> None:
    """Raise `Conflict` if an active policy has this name."""
    if await policies.taken(tx.connection, tx.tenant_id, [name]):
        raise Conflict(f"an active policy named `{name}` already exists")


async def record(
    app: AppContext, tx: Transaction, rows: Sequence[StoredPolicy], change: str, by: str
) -> None:
    """Record the rows' current versions in their history and in the log."""
    await policies.add_versions(tx.connection, tx.tenant_id, rows, by, change)
    for row in rows:
        # The digest instead of the body: the log stays small, and still proves which version the
        # history held.
        digest = hashlib.sha256(encode(row.body)).hexdigest()
        detail = {"name": row.name, "version": row.version, "sha256": digest}
        await app.log_change(tx, f"policy.{change}", row.policy_id, by, detail)


async def publish(tx: Transaction, roles: Iterable[str]) -> None:
    """Publish the documents of these roles from their current policies. Raises `Conflict` if one
    would be larger than `MAX_DOCUMENT`."""
    names = sorted(set(roles))
    documents: dict[str, bytes | None] = {}
    for at in range(0, len(names), _CHUNK):
        chunk = names[at : at + _CHUNK]
        active: dict[str, list[Policy]] = {role: [] for role in chunk}
        for row in await policies.of_roles(tx.connection, tx.tenant_id, chunk):
            active[row.agent_role].append(row.published())
        documents |= {role_name(role): _document(role, active[role]) for role in chunk}
    await tx.publish(documents)


def _document(role: str, active: list[Policy]) -> bytes | None:
    document = role_document(active)
    if document is not None and len(document) > MAX_DOCUMENT:
        raise Conflict(
            f"the {len(active)} policies of role `{role}` would take {len(document)} bytes, over "
            f"the limit of {MAX_DOCUMENT}: shorten their lists, or use wildcards"
        )
    return document
