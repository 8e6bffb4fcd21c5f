"""Revoke every session of a role, an agent or a user: one control for an incident (contract,
section 6).

Many sessions are many transactions, so that evaluations and other writes of the tenant are not held
up. If we die between two, those of the first are revoked and published, the caller gets no answer,
and the same request again revokes the rest.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Identifier, RequestModel, Text
from control_api.responses.tenants import Revoked
from control_api.store.queries import session_revocation
from control_api.store.queries.session_revocation import SessionFilter, SessionPosition
from control_api.store.queries.sessions import SessionRow
from control_api.store.transaction import Transaction
from policies.ground.errors import invalid
from policies.sets.policy_set import session_document, session_name
from policies.trail.record import change_record, masked_user

AT_ONCE = 200
"""Sessions of one transaction: on SQLite an evaluation waits for it."""

NEEDED = "agent_role, agent_id, user_id: at least one is required"


class RevokedSessions(RequestModel):
    """Whose sessions, and why; at least one of role, agent and user, and a session must match all
    that are given. The reason is kept with each session, not in the log."""

    example: ClassVar[dict[str, Any]] = {"agent_id": "agt_loans", "reason": "leaked key"}

    agent_role: Identifier | None = None
    agent_id: Identifier | None = None
    user_id: Identifier | None = None
    reason: Text


async def revoke_sessions(service: AppContext, caller: Caller, asked: RevokedSessions) -> Revoked:
    """Revoke all sessions of a role, an agent or a user at once.

    Sessions claimed while the request runs may be left: suspend the agent, or freeze the tenant,
    first. Where user ids are masked, users that are masked alike can't be told apart, and the
    sessions of all of them are revoked.
    """
    wanted = _filter(asked)
    tenant_id = caller.tenant.tenant_id
    revoked, after = 0, None
    while True:
        now = service.clock.now()
        async with service.store.reading(tenant_id) as connection:
            found: list[SessionPosition] = await session_revocation.revocable(
                connection, tenant_id, wanted, now, after, AT_ONCE
            )
        # Written even where nothing was found: the answer tells the tenant's revision.
        ids = [session_id for _, session_id in found]
        revoked += await _revoke(service, caller, ids, asked.reason)
        if len(found) < AT_ONCE:
            return Revoked(revoked)
        after = found[-1]


def _filter(asked: RevokedSessions) -> SessionFilter:
    user_id = asked.user_id
    if asked.agent_role is None and asked.agent_id is None and user_id is None:
        raise invalid([NEEDED])
    # Whether a session's user was masked depends on the setting when it was claimed.
    users = () if user_id is None else tuple({user_id, masked_user(user_id)})
    return SessionFilter(asked.agent_role, asked.agent_id, users)


async def _revoke(service: AppContext, caller: Caller, ids: Sequence[str], reason: str) -> int:
    """One transaction: each session is revoked, logged and published as if it were the only one."""

    async def work(tx: Transaction) -> list[SessionRow]:
        rows = await session_revocation.revoke_all(tx.connection, tx.tenant_id, ids, reason, tx.now)
        for row in rows:
            whose = {"agent_role": row.agent_role, "agent_id": row.agent_id}
            record_id = service.new_id()
            await tx.append(
                change_record(
                    "session.revoked", row.session_id, caller.by, whose, record_id=record_id
                )
            )
        if rows:
            await tx.publish(
                {session_name(row.session_id): session_document(row.session_id) for row in rows}
            )
        return rows

    tenant_id = caller.tenant.tenant_id
    rows = await service.store.write(tenant_id, work)
    # Committed. If we die here, sidecars learn of it by the documents.
    if service.publishing is not None:
        for row in rows:
            service.publishing.session(tenant_id, row)
    return len(rows)
