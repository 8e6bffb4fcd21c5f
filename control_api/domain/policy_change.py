"""The steps that every change of a policy shares: a version in the history, an entry in the log,
the proof that the guardrails hold, and new documents for the affected roles. Knows no operation
and no file."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from control_api.app_context import AppContext
from control_api.domain.guardrails import require_guardrails
from control_api.presenters import shown_policy
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.definitions.model import Policy
from policies.ground.canonical import encode
from policies.ground.errors import Conflict, NotFound
from policies.sets.policy_set import role_document, role_name
from policies.trail.change import ObjectChange

# Every sidecar that decides for a role holds all of the role's policies in memory.
MAX_DOCUMENT = 1024 * 1024
"""The maximum size in bytes of a role's document, which holds all of its policies."""

_CHUNK = 500  # names in one statement


def active_policy(policy: StoredPolicy | None, policy_id: str) -> StoredPolicy:
    """The policy; `NotFound` if it does not exist or was deleted."""
    if policy is None or policy.deleted_at is not None:
        raise NotFound(f"no such policy: `{policy_id}`")
    return policy


async def shown(tx: Transaction, row: StoredPolicy) -> PolicyShown:
    """The policy as the transaction leaves it, with the author of its version."""
    authors = await policies.authors(tx.connection, tx.tenant_id, [row])
    return shown_policy(row, authors[row.policy_id])


async def refuse_taken(tx: Transaction, name: str) -> None:
    """Raise `Conflict` if an active policy has this name."""
    if await policies.taken(tx.connection, tx.tenant_id, [name]):
        raise Conflict(f"an active policy named `{name}` already exists")


class Changed(NamedTuple):
    """A policy's row before and after a change; before is None for a new policy."""

    before: StoredPolicy | None
    after: StoredPolicy


async def record(
    app: AppContext, tx: Transaction, changed: Sequence[Changed], change: str, by: str
) -> None:
    """Record the rows' new versions in their history and in the log. Call it after `publish`: the
    log names the documents that followed."""
    rows = [after for _, after in changed]
    await policies.add_versions(tx.connection, tx.tenant_id, rows, by, change)
    for before, row in changed:
        # The digest instead of the body: the log stays small, and still proves which version the
        # history held.
        digest = hashlib.sha256(encode(row.body)).hexdigest()
        detail = {"name": row.name, "version": row.version, "sha256": digest}
        shown = _shown_change(tx, before, row)
        await app.log_change(tx, f"policy.{change}", row.policy_id, by, detail, shown)


def _shown_change(
    tx: Transaction, before: StoredPolicy | None, after: StoredPolicy
) -> ObjectChange:
    """The change of a policy's body, as its history shows it; a deleted policy has none."""
    bodies = [
        None if row is None or row.deleted_at is not None else row.body for row in (before, after)
    ]
    roles = {row.agent_role for row in (before, after) if row is not None}
    published = [each for role in sorted(roles) for each in tx.published(role_name(role))]
    return ObjectChange(bodies[0], bodies[1], published=published)


async def publish(tx: Transaction, roles: Iterable[str]) -> None:
    """Publish the documents of these roles from their current policies. Raises `Conflict` if one
    would be larger than `MAX_DOCUMENT`, and `GuardrailBroken` if they break a guardrail.

    INVARIANT: whatever changes which policies are in force calls this in its transaction, after it
    wrote the policies and the guardrails, with all roles that it touches. So no change, a promotion
    of candidates included, needs a check of its own.
    """
    names = sorted(set(roles))
    documents: dict[str, bytes | None] = {}
    touched: dict[str, list[Policy]] = {}
    for at in range(0, len(names), _CHUNK):
        chunk = names[at : at + _CHUNK]
        active: dict[str, list[Policy]] = {role: [] for role in chunk}
        for row in await policies.of_roles(tx.connection, tx.tenant_id, chunk):
            active[row.agent_role].append(row.published())
        documents |= {
            role_name(role): within_limit(role, role_document(active[role])) for role in chunk
        }
        touched |= active
    await require_guardrails(tx, touched)
    await tx.publish(documents)


def within_limit(role: str, document: bytes | None) -> bytes | None:
    """The role's document. Raises `Conflict` over `MAX_DOCUMENT`."""
    if document is not None and len(document) > MAX_DOCUMENT:
        raise Conflict(
            f"the policies of role `{role}` would take {len(document)} bytes, over the limit of "
            f"{MAX_DOCUMENT}: shorten their lists, or use wildcards"
        )
    return document
