"""Defines the steps that all changes of policies share: a new version, an entry in the log, and the
role's document. Refuses a change that would break one of the tenant's guardrails.

    require_guardrails    a change of policies; `policy_change.publish` calls it, so each one does
    require_new           a change of guardrails

INVARIANT: at each commit, what is in force breaks no guardrail. What a role is allowed depends on
that role's policies alone (`policies/analysis/guardrails.py`). So a change of policies is checked
for the roles that it touches, and a new guardrail for every role. The transaction has locked the
tenant's row (`Transaction.begin`) before its first read: of two concurrent changes, on any
replicas, the second sees the result of the first.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.policy import guardrails
from control_api.policy.bundle import Policies
from control_api.policy.models import PolicyResponse, shown_policy
from control_api.store.queries import policy_rows
from control_api.store.queries.policy_rows import StoredPolicy
from control_api.store.schema.statements import chunks
from control_api.store.transaction import Transaction
from policies.analysis.access import body, decided
from policies.analysis.difference import by_role
from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import TooManyClasses
from policies.definitions.guardrail import Guardrail
from policies.definitions.model import Policy
from policies.ground.canonical import encode
from policies.ground.errors import Conflict, NotFound
from policies.retrieval import Retrieval
from policies.sets.policy_set import role_document, role_name
from policies.sets.role import compile_role
from policies.trail.change import ObjectChange

_TOGETHER = 20
"""The number of guardrails that are checked in a row, before a query tells the database that the
transaction is still alive."""


class GuardrailBroken(Conflict):
    """the change would break a guardrail; `details` has a request that shows it"""

    def __init__(
        self, guardrail: Guardrail, request: Retrieval, policies: Sequence[Policy]
    ) -> None:
        """Describe the broken guardrail. `request` is a counterexample; `policies` are those that
        its role would have."""
        # Decided by the core itself: what is reported is what an evaluation would say.
        role = compile_role(request.agent_role, policies) if policies else None
        self.guardrail = guardrail
        self.policy_name = str(decided(request, role)["policy_name"])
        decision = "allows" if guardrail.kind == "never" else "denies"
        shown = {"guardrail": guardrail.name, "counterexample": body(request)}
        super().__init__(
            f"guardrail `{guardrail.name}` would be broken: `{self.policy_name}` {decision} the "
            "request in `details`; nothing was changed",
            details=orjson.dumps(shown).decode(),
        )


async def require_guardrails(tx: Transaction, touched: Mapping[str, Sequence[Policy]]) -> None:
    """Raise `GuardrailBroken` if a change of policies breaks a guardrail of the tenant. `touched`
    holds the roles that the change touches, each with all the policies that it will have."""
    rows = await guardrails.every_guardrail(tx.connection, tx.tenant_id)
    if rules := [each.guardrail for each in rows]:
        await _require(tx, rules, GuardedRoles(touched, every=False))


async def require_new(tx: Transaction, rules: Sequence[Guardrail]) -> None:
    """Raise `GuardrailBroken` if the policies in force, as this transaction leaves them, break one
    of these new rules."""
    if not rules:
        return
    rows = await policy_rows.in_force(tx.connection, tx.tenant_id)

    def read() -> GuardedRoles:
        found = by_role(StoredPolicy.from_row(row).published() for row in rows)
        return GuardedRoles(found, every=True)

    await _require(tx, rules, await asyncio.to_thread(read))


async def _require(tx: Transaction, rules: Sequence[Guardrail], roles: GuardedRoles) -> None:
    def first_broken(some: Sequence[Guardrail]) -> tuple[Guardrail, Retrieval] | None:
        tried = ((rule, roles.counterexample(rule)) for rule in some)
        return next(((rule, found) for rule, found in tried if found is not None), None)

    for at in range(0, len(rules), _TOGETHER):
        try:
            # In a thread: the event loop decides for other tenants meanwhile.
            broken = await asyncio.to_thread(first_broken, rules[at : at + _TOGETHER])
        except TooManyClasses as error:
            # Without an answer nothing is proven, so nothing changes.
            raise Conflict(
                f"the guardrails can't be checked, and nothing was changed: {error}"
            ) from error
        if broken is not None:
            rule, request = broken
            role = roles.roles.get(request.agent_role)
            raise GuardrailBroken(rule, request, role.policies if role else ())
        # PostgreSQL ends a writing transaction that is silent for seconds.
        await tx.connection.execute(text("SELECT 1"))


# Every sidecar that decides for a role holds all of the role's policies in memory.
MAX_DOCUMENT = 1024 * 1024
"""The most bytes in a role's document, which holds all of the role's policies."""


async def existing_policy(
    connection: AsyncConnection, tenant_id: str, policy_id: str
) -> StoredPolicy:
    """Return the policy, even if it was deleted. Raise `NotFound` if it never existed."""
    if (policy := await policy_rows.get(connection, tenant_id, policy_id)) is None:
        raise NotFound(f"no such policy: `{policy_id}`")
    return policy


async def active_policy(
    connection: AsyncConnection, tenant_id: str, policy_id: str
) -> StoredPolicy:
    """Return the policy. Raise `NotFound` if it does not exist or was deleted."""
    policy = await existing_policy(connection, tenant_id, policy_id)
    if policy.deleted_at is not None:
        raise NotFound(f"no such policy: `{policy_id}`")
    return policy


async def shown(tx: Transaction, row: StoredPolicy) -> PolicyResponse:
    """Return the policy for a response, as the transaction leaves it, with the author of its
    version."""
    authors = await policy_rows.authors(tx.connection, tx.tenant_id, [row])
    return shown_policy(row, authors[row.policy_id])


async def refuse_taken(tx: Transaction, name: str) -> None:
    """Raise `Conflict` if an active policy has this name."""
    if await policy_rows.taken(tx.connection, tx.tenant_id, [name]):
        raise Conflict(f"an active policy named `{name}` already exists")


class Changed(NamedTuple):
    """A policy's row before and after a change. `before` is None for a new policy."""

    before: StoredPolicy | None
    after: StoredPolicy


async def record(
    policies: Policies, tx: Transaction, changed: Sequence[Changed], change: str, by: str
) -> None:
    """Record the rows' new versions in their history and in the log. Call it after `publish`,
    because the log entry cites the documents that were published."""
    rows = [after for _, after in changed]
    await policy_rows.add_versions(tx.connection, tx.tenant_id, rows, by, change)
    for before, row in changed:
        # The digest instead of the body: the log stays small, and still proves which version the
        # history held.
        digest = hashlib.sha256(encode(row.body)).hexdigest()
        detail = {"name": row.name, "version": row.version, "sha256": digest}
        shown = _shown_change(tx, before, row)
        await policies.changes.record(tx, f"policy.{change}", row.policy_id, by, detail, shown)


def _shown_change(
    tx: Transaction, before: StoredPolicy | None, after: StoredPolicy
) -> ObjectChange:
    """Return the policy's body before and after the change, as its history shows it, with the
    published documents. A deleted policy has no body."""
    bodies = [
        None if row is None or row.deleted_at is not None else row.body for row in (before, after)
    ]
    roles = {row.agent_role for row in (before, after) if row is not None}
    published = [each for role in sorted(roles) for each in tx.published(role_name(role))]
    return ObjectChange(bodies[0], bodies[1], published=published)


async def publish(tx: Transaction, roles: Iterable[str]) -> None:
    """Publish the documents of these roles, made from their current policies. Raise `Conflict` if
    one would be larger than `MAX_DOCUMENT`, and `GuardrailBroken` if the policies break a
    guardrail.

    INVARIANT: whatever changes which policies are in force calls this in its transaction, after it
    wrote the policies and the guardrails, with all roles that it touches. So no change, including
    the promotion of a candidate, needs a check of its own.
    """
    names = sorted(set(roles))
    documents: dict[str, bytes | None] = {}
    touched: dict[str, list[Policy]] = {}
    for chunk in chunks(names):
        active: dict[str, list[Policy]] = {role: [] for role in chunk}
        for row in await policy_rows.of_roles(tx.connection, tx.tenant_id, chunk):
            active[row.agent_role].append(row.published())
        documents |= {
            role_name(role): within_limit(role, role_document(active[role])) for role in chunk
        }
        touched |= active
    await require_guardrails(tx, touched)
    await tx.publish(documents)


def within_limit(role: str, document: bytes | None) -> bytes | None:
    """Return the role's document unchanged. Raise `Conflict` if it is larger than
    `MAX_DOCUMENT`."""
    if document is not None and len(document) > MAX_DOCUMENT:
        raise Conflict(
            f"the policies of role `{role}` would take {len(document)} bytes, over the limit of "
            f"{MAX_DOCUMENT}: shorten their lists, or use wildcards"
        )
    return document
